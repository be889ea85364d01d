# name: reading: stdin.read: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
import sys
n, *a = map(int, sys.stdin.read().split())
print(n, sum(a), a)
