# name: script: a pool of futures
# input: "5\r\n7 8\r\nend\r\n"
# ---
from concurrent.futures import ThreadPoolExecutor, as_completed
with ThreadPoolExecutor(8) as p:
    fs = [p.submit(pow, i, 2) for i in range(10)]
    print(sorted(f.result() for f in as_completed(fs)))
