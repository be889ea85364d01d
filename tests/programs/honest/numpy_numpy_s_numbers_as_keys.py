# name: numpy: numpy's numbers as keys
# needs: numpy
# function: f
# input: [[1, 3, 1]]
# output: {"1": 2, "3": 1}
# ---
import numpy as np
def f(a): return {k: c for k, c in zip(*np.unique(a, return_counts=True))}
