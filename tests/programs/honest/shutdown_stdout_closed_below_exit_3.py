# name: shutdown: stdout closed below, exit 3
# input: ""
# ---
import os, sys
print(1)
os.close(1)
sys.exit(3)
