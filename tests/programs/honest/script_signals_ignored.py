# name: script: signals ignored
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, signal
for n in signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2:
    print(signal.signal(n, signal.SIG_IGN))
    os.kill(os.getpid(), n)
os.kill(os.getpid(), signal.SIGCHLD)
os.kill(os.getpid(), 0)
print('alive')
