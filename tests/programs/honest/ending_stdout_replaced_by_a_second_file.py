# name: ending: stdout replaced by a second file
# input: ""
# output: "1\n"
# ---
import sys
sys.stdout = open(1, 'w', buffering=1 << 16)
print(1)
