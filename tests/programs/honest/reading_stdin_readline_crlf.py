# name: reading: stdin.readline: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import sys
r = sys.stdin.readline
n = int(r())
a = [*map(int, r().split())]
print(n, sum(a), a)
