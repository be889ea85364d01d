# name: stdin: iteration
# input: "1\n2\n3"
# ---
import sys
print(sum(int(x) for x in sys.stdin))
