# name: ending: sys.exit(0)
# input: ""
# output: "1\n"
# ---
import sys
print(1)
sys.exit(0)
