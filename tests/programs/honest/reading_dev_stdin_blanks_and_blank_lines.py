# name: reading: /dev/stdin: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
n, *a = map(int, open('/dev/stdin').read().split())
print(n, sum(a), a)
