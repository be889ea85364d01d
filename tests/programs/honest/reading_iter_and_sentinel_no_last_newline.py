# name: reading: iter and sentinel: no last newline
# input: "3\n1 2 3"
# ---
import sys
b = [*iter(sys.stdin.readline, '')]
n, *a = map(int, ''.join(b).split())
print(n, sum(a), a)
