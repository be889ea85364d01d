# name: reading: stdin.buffer: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import sys
n, *a = map(int, sys.stdin.buffer.read().split())
print(n, sum(a), a)
