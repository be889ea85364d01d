# name: ending: a file that a module holds
# input: ""
# output: "1\n"
# ---
import math
math.out = open(1, 'w')
math.out.write('1\n')
