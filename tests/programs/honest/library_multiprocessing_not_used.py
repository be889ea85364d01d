# name: library: multiprocessing, not used
# input: ""
# output: "1\n"
# ---
import multiprocessing
from multiprocessing import Pool, Process
print(1)
