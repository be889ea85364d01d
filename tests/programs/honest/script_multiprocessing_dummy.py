# name: script: multiprocessing.dummy
# input: "5\r\n7 8\r\nend\r\n"
# ---
from multiprocessing.dummy import Pool, Lock, Process
p = Process(target=print, args=('in',)); p.start(); p.join()
with Pool(3) as p: print(p.starmap(pow, [(2, 3), (3, 2)]))
