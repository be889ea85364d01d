# name: shutdown: its own module deleted
# input: ""
# ---
out = open(1, 'w')
import sys
out.write('m')
del sys.modules['__main__']
def f(): pass
