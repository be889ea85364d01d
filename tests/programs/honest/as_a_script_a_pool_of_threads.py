# name: as a script: a pool of threads
# input: ""
# ---
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool: print(sum(pool.map(abs, range(-50, 0))))
