# name: shutdown: a file behind a trace function
# input: ""
# ---
out = open(1, 'w')
import sys
sys.settrace(lambda *_: None)
def f(): out.write('1')
f()
