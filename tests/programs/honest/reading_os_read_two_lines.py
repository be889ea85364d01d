# name: reading: os.read: two lines
# input: "3\n1 2 3\n"
# ---
import os
n, *a = map(int, os.read(0, 1 << 16).split())
print(n, sum(a), a)
