# name: reading: stdin.read: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import sys
n, *a = map(int, sys.stdin.read().split())
print(n, sum(a), a)
