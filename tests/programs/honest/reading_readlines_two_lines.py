# name: reading: readlines: two lines
# input: "3\n1 2 3\n"
# ---
import sys
b = sys.stdin.readlines()
n = int(b[0])
a = [*map(int, b[1].split())]
print(n, sum(a), a)
