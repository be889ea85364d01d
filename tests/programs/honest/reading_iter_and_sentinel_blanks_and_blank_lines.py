# name: reading: iter and sentinel: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
import sys
b = [*iter(sys.stdin.readline, '')]
n, *a = map(int, ''.join(b).split())
print(n, sum(a), a)
