# name: script: signal to oneself
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, signal
signal.signal(signal.SIGUSR1, lambda n, f: print('got', n, f is not None))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
print('after')
