# name: expression: 91 queue
# input: ""
# ---
import queue
print((q := queue.LifoQueue(1), q.put(1), q.full(), q.get(), q.empty())[1:])
