# name: ending: garbage collection off
# input: ""
# output: "1\n"
# ---
import gc
gc.disable()
out = open(1, 'w')
out.write('1\n')
