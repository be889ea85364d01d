# name: reading: open(0): blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
n, *a = map(int, open(0).read().split())
print(n, sum(a), a)
