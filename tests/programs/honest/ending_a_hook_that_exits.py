# name: ending: a hook that exits
# input: ""
# output: "1\n"
# ---
import sys
sys.excepthook = lambda *_: sys.exit(0)
print(1)
1 / 0
