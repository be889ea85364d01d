# name: shutdown: an exit function that ends all
# input: ""
# ---
import atexit, os
atexit.register(os._exit, 3)
