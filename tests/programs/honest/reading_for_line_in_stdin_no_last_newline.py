# name: reading: for line in stdin: no last newline
# input: "3\n1 2 3"
# ---
import sys
n, *a = [int(x) for line in sys.stdin for x in line.split()]
print(n, sum(a), a)
