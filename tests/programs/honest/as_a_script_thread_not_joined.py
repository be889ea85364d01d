# name: as a script: thread not joined
# input: ""
# ---
import threading, time
def f():
 time.sleep(0.05)
 print('late')
threading.Thread(target=f).start()
