# name: reading: input: no last newline
# input: "3\n1 2 3"
# ---
n = int(input())
a = [int(x) for x in input().split()]
print(n, sum(a), a)
