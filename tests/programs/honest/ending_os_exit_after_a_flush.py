# name: ending: os._exit after a flush
# input: ""
# output: "1\n"
# ---
import os
print(1, flush=True)
os._exit(0)
