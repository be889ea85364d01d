# name: script: a timer, a barrier, a condition, a semaphore
# input: "5\r\n7 8\r\nend\r\n"
# ---
import threading
b = threading.Barrier(2)
t = threading.Timer(.01, b.wait); t.start(); b.wait(); t.join()
c = threading.Condition()
with c: print(c.wait_for(lambda: True), threading.BoundedSemaphore(2).acquire())
print(threading.current_thread().name, threading.main_thread() is threading.current_thread())
