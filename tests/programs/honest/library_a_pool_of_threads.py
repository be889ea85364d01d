# name: library: a pool of threads
# input: ""
# output: "[3, 2, 1]\n"
# ---
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool: print(list(pool.map(abs, range(-3, 0))))
