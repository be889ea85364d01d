
import os, threading
threads = [threading.Thread(target=lambda: ids.append(threading.get_native_id())) for _ in range(3)]
ids = [os.getpid(), threading.get_native_id()]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(ids)
