# name: shutdown: a hook that fails
# input: ""
# ---
import sys
sys.excepthook = lambda *_: 1 / 0
print(1)
1 / 0
