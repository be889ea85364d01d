# name: reading: readlines: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
import sys
b = sys.stdin.readlines()
n = int(b[0])
a = [*map(int, b[1].split())]
print(n, sum(a), a)
