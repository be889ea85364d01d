# name: script: numpy from input
# needs: numpy
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys, numpy as np
print(np.fromstring(sys.stdin.read(), dtype=np.int64, sep=' ').sum())
