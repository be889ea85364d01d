# name: library: a short sleep
# input: ""
# output: "True\n"
# ---
import time
time.sleep(0.01)
print(time.time() > 1e9)
