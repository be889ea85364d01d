# name: numpy: a numpy array returned as a list
# needs: numpy
# function: f
# input: [[[1, 2], [3, 4]]]
# output: [[1, 3], [2, 4]]
# ---
import numpy as np
def f(a): return np.array(a).T.tolist()
