# name: reading: iter and sentinel: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import sys
b = [*iter(sys.stdin.readline, '')]
n, *a = map(int, ''.join(b).split())
print(n, sum(a), a)
