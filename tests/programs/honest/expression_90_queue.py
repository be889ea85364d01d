# name: expression: 90 queue
# input: ""
# ---
import queue
print((q := queue.PriorityQueue(), q.put((2, "b")), q.put((1, "a")), q.get(), q.qsize())[1:])
