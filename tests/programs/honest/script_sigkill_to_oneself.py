# name: script: SIGKILL to oneself
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, signal
print(1, flush=True)
signal.raise_signal(signal.SIGKILL)
