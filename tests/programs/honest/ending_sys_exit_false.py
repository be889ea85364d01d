# name: ending: sys.exit(False)
# input: ""
# output: "1\n"
# ---
import sys
print(1)
sys.exit(False)
