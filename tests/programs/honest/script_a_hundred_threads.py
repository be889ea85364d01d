# name: script: a hundred threads
# input: "5\r\n7 8\r\nend\r\n"
# ---
import threading
lock, event, total = threading.Lock(), threading.Event(), [0]
def work(i):
    event.wait()
    with lock: total[0] += i
ts = [threading.Thread(target=work, args=(i,)) for i in range(100)]
for t in ts: t.start()
print(threading.active_count()); event.set()
for t in ts: t.join()
print(total)
