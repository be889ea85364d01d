# name: numpy: numpy
# needs: numpy
# input: "1 2 3\n"
# output: "[1 3 6] 3\n"
# ---
import numpy as np
a = np.array(input().split(), np.int64)
print(a.cumsum(), a.max())
