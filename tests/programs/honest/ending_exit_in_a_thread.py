# name: ending: exit in a thread
# input: ""
# output: "1\n"
# ---
import sys, threading
t = threading.Thread(target=sys.exit, args=(3,))
t.start()
t.join()
print(1)
