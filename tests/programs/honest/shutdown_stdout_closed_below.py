# name: shutdown: stdout closed below
# input: ""
# ---
import os
print(1)
os.close(1)
