# name: reading: readlines: no last newline
# input: "3\n1 2 3"
# ---
import sys
b = sys.stdin.readlines()
n = int(b[0])
a = [*map(int, b[1].split())]
print(n, sum(a), a)
