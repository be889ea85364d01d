# name: script: ThreadPool
# input: "5\r\n7 8\r\nend\r\n"
# ---
from multiprocessing.pool import ThreadPool
with ThreadPool(4) as p: print(p.map(lambda x: x * x, range(9)), p.apply(max, (1, 2)))
print([*ThreadPool(2).imap(str, range(3))])
