# name: ending: an exit function that fails
# input: ""
# output: "1\n"
# ---
import atexit
atexit.register(lambda: 1 / 0)
print(1)
