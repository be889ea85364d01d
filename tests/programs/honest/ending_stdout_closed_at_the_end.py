# name: ending: stdout closed at the end
# input: ""
# output: "1\n"
# ---
import sys
print(1)
sys.stdout.close()
