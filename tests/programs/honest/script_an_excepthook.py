# name: script: an excepthook
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
sys.excepthook = lambda t, v, b: print('hook', t.__name__)
1 / 0
