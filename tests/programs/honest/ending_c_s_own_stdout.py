# name: ending: C's own stdout
# input: ""
# output: "7\n"
# ---
import ctypes
ctypes.CDLL(None).printf(b'%d\n', 7)
