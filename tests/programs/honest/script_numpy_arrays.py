# name: script: numpy arrays
# needs: numpy
# input: "5\r\n7 8\r\nend\r\n"
# ---
import numpy as np
a = np.arange(12).reshape(3, 4)
print(a.T @ a, a.sum(axis=0), a[a > 5], np.cumsum(a[0]), a.dtype, np.array([1, 2.5]))
print(np.linalg.det(np.eye(2)), np.sort([3, 1]), np.unique([1, 1, 2], return_counts=True), np.gcd.reduce([4, 6]))
