# name: numpy: sorting beside numpy
# needs: numpy
# input: "3 1 2\n"
# output: "1 2 3 6 3.7416573867739413 True\n"
# ---
import numpy as np
a = np.array(input().split(), dtype=np.int64)
print(*np.sort(a), a.sum(), np.linalg.norm(a.astype(float)), np.__version__ > '2')
