# name: ending: exit functions in reverse
# input: ""
# output: "0\n1\n2\n"
# ---
import atexit
atexit.register(print, 2)
atexit.register(print, 1)
print(0)
