# name: script: numpy errors
# needs: numpy
# input: "5\r\n7 8\r\nend\r\n"
# ---
import numpy as np
print(np.array([1]) / 0, np.int64(2**62) * 2)
np.zeros(3)[5]

