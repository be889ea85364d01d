# name: reading: stdin.buffer.raw: two lines
# input: "3\n1 2 3\n"
# ---
import sys
n, *a = map(int, sys.stdin.buffer.raw.readall().split())
print(n, sum(a), a)
