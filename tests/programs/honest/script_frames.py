# name: script: frames
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys, traceback
def f(): return sys._getframe(1).f_code.co_name, sys._getframe().f_back.f_back
print(f(), len(traceback.format_stack()), sys._getframe().f_globals is globals())
try: sys._getframe(1)
except ValueError as e: print(e)
