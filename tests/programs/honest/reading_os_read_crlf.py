# name: reading: os.read: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import os
n, *a = map(int, os.read(0, 1 << 16).split())
print(n, sum(a), a)
