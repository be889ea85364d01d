# name: script: thread-local values and queues
# input: "5\r\n7 8\r\nend\r\n"
# ---
import queue, threading
local, q = threading.local(), queue.Queue()
local.x = 1
t = threading.Thread(target=lambda: q.put(hasattr(local, 'x'))); t.start()
print(q.get(timeout=9), local.x)
