# name: reading: input: two lines
# input: "3\n1 2 3\n"
# ---
n = int(input())
a = [int(x) for x in input().split()]
print(n, sum(a), a)
