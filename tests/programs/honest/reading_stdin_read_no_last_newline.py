# name: reading: stdin.read: no last newline
# input: "3\n1 2 3"
# ---
import sys
n, *a = map(int, sys.stdin.read().split())
print(n, sum(a), a)
