# name: reading: /proc/self/fd/0: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
n, *a = map(int, open('/proc/self/fd/0').read().split())
print(n, sum(a), a)
