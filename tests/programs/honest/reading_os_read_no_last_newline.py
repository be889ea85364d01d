# name: reading: os.read: no last newline
# input: "3\n1 2 3"
# ---
import os
n, *a = map(int, os.read(0, 1 << 16).split())
print(n, sum(a), a)
