# name: shutdown: a file in a module of one's own
# input: ""
# ---
import sys, types
sys.modules['m'] = m = types.ModuleType('m')
m.out = open(1, 'w', closefd=False)
m.out.write('m')
print(1)
