# name: shutdown: an exit function after an exception
# input: ""
# ---
import atexit
atexit.register(print, 'a')
1 / 0
