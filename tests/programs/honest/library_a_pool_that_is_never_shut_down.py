# name: library: a pool that is never shut down
# input: ""
# output: "1\n"
# ---
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor(2).submit(print, 1)
