# name: ending: a file that a hook holds
# input: ""
# output: "1\n"
# ---
import sys
out = open(1, 'w')
def hook(*_): out.write('wrong')
sys.excepthook = hook
out.write('1\n')
