# name: script: numpy files and random numbers
# needs: numpy
# input: "5\r\n7 8\r\nend\r\n"
# ---
import numpy as np
np.save('a.npy', np.ones(3)); print(np.load('a.npy'))
np.savetxt('t', [[1, 2]], fmt='%d'); print(open('t').read(), np.random.default_rng(1).integers(0, 9, 5))
