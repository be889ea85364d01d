# name: reading: readlines: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import sys
b = sys.stdin.readlines()
n = int(b[0])
a = [*map(int, b[1].split())]
print(n, sum(a), a)
