# name: script: SIGINT to oneself
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, signal
try: os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt: print('interrupted')
signal.raise_signal(signal.SIGINT)
