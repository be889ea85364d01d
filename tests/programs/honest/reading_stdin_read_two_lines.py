# name: reading: stdin.read: two lines
# input: "3\n1 2 3\n"
# ---
import sys
n, *a = map(int, sys.stdin.read().split())
print(n, sum(a), a)
