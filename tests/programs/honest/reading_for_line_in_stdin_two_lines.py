# name: reading: for line in stdin: two lines
# input: "3\n1 2 3\n"
# ---
import sys
n, *a = [int(x) for line in sys.stdin for x in line.split()]
print(n, sum(a), a)
