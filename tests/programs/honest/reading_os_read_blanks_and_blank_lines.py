# name: reading: os.read: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
import os
n, *a = map(int, os.read(0, 1 << 16).split())
print(n, sum(a), a)
