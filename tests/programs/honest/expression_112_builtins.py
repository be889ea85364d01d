# name: expression: 112 builtins
# input: ""
# ---
import builtins
print("%5.1f|%-5s|%05d|%x|%e|%s" % (2.25, "ab", 42, 255, 12345.678, None), "{:>{w}}".format(1, w=4))
