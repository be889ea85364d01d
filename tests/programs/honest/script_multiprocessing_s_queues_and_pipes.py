# name: script: multiprocessing's queues and pipes
# input: "5\r\n7 8\r\nend\r\n"
# ---
import multiprocessing as mp
q, s = mp.Queue(), mp.SimpleQueue()
q.put([1]); s.put('x')
print(q.get(timeout=9), s.get())
a, b = mp.Pipe()
a.send({'k': 1}); print(b.recv(), b.poll())
