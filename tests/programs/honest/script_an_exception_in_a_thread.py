# name: script: an exception in a thread
# input: "5\r\n7 8\r\nend\r\n"
# ---
import threading
t = threading.Thread(target=lambda: 1 / 0)
t.start(); t.join()
print('alive')
