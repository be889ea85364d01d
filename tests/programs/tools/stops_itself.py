
import os, signal, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
while True:
    try:
        os.kill(os.getpid(), signal.SIGSTOP)
    except PermissionError:
        pass
    time.sleep(0.001)
