# name: shutdown: a hook that exits
# input: ""
# ---
import sys
sys.excepthook = lambda *_: sys.exit(5)
1 / 0
