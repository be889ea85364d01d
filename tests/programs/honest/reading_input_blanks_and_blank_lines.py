# name: reading: input: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
n = int(input())
a = [int(x) for x in input().split()]
print(n, sum(a), a)
