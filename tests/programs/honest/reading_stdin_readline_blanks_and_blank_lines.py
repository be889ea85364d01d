# name: reading: stdin.readline: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
import sys
r = sys.stdin.readline
n = int(r())
a = [*map(int, r().split())]
print(n, sum(a), a)
