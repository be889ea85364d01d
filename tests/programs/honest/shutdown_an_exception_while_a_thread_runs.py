# name: shutdown: an exception while a thread runs
# input: ""
# ---
import threading, time
threading.Thread(target=lambda: (time.sleep(0.02), print(2))).start()
1 / 0
