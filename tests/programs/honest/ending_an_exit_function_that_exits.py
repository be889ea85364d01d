# name: ending: an exit function that exits
# input: ""
# output: "1\n"
# ---
import atexit, sys
atexit.register(sys.exit, 3)
print(1)
