# name: reading: stdin.buffer.raw: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import sys
n, *a = map(int, sys.stdin.buffer.raw.readall().split())
print(n, sum(a), a)
