# name: reading: stdin.buffer.raw: no last newline
# input: "3\n1 2 3"
# ---
import sys
n, *a = map(int, sys.stdin.buffer.raw.readall().split())
print(n, sum(a), a)
