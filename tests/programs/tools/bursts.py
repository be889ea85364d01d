
import hashlib, threading, time
data = bytes(3 << 20)
def burst():
    while True:
        time.sleep(0.3 - time.monotonic() % 0.3)
        hashlib.sha256(data)
for _ in range(40):
    threading.Thread(target=burst).start()
