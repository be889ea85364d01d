# name: reading: stdin.readline: no last newline
# input: "3\n1 2 3"
# ---
import sys
r = sys.stdin.readline
n = int(r())
a = [*map(int, r().split())]
print(n, sum(a), a)
