# name: numpy: numpy and an open file
# needs: numpy
# input: ""
# output: "3\n"
# ---
import numpy as np
out = open(1, 'w')
def f(): print(np.arange(3).sum(), file=out)
f()
