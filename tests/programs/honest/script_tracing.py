# name: script: tracing
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
calls = []
sys.setprofile(lambda f, e, a: calls.append(e))
len('a')
sys.setprofile(None)
print('c_call' in calls, sys._getframe().f_lineno, sys.exc_info())
