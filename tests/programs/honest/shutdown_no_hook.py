# name: shutdown: no hook
# input: ""
# ---
import sys
sys.excepthook = None
print(1)
1 / 0
