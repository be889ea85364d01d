# name: script: multiprocessing's locks
# input: "5\r\n7 8\r\nend\r\n"
# ---
import multiprocessing as mp
l, r, s, e = mp.Lock(), mp.RLock(), mp.Semaphore(2), mp.Event()
with l: print(l, l.acquire(block=False), l.acquire(timeout=.01))
with r, r: print(r)
s.acquire(); print(s.get_value(), s)
e.set(); print(e.is_set(), e.wait(1))
try: l.release()
except ValueError as error: print(error)
try: r.release()
except AssertionError as error: print(error)
