# name: script: a module of its own
# input: "5\r\n7 8\r\nend\r\n"
# ---
with open('helper.py', 'w') as f: f.write('def double(x): return 2 * x')
import helper, bisect, sys; from helper import double
print(double(21), helper.__name__, sys.path[0] == __file__.rpartition('/')[0])
