# name: reading: iter and sentinel: two lines
# input: "3\n1 2 3\n"
# ---
import sys
b = [*iter(sys.stdin.readline, '')]
n, *a = map(int, ''.join(b).split())
print(n, sum(a), a)
