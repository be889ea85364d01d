# name: script: SIGTERM to oneself
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, signal
print(1, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print(2)
