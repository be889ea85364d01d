# name: reading: stdin.readline: two lines
# input: "3\n1 2 3\n"
# ---
import sys
r = sys.stdin.readline
n = int(r())
a = [*map(int, r().split())]
print(n, sum(a), a)
