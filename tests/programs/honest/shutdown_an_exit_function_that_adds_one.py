# name: shutdown: an exit function that adds one
# input: ""
# ---
import atexit
atexit.register(lambda: atexit.register(print, 2))
print(1)
