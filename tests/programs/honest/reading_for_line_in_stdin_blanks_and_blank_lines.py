# name: reading: for line in stdin: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
import sys
n, *a = [int(x) for line in sys.stdin for x in line.split()]
print(n, sum(a), a)
