# name: reading: open(0): no last newline
# input: "3\n1 2 3"
# ---
n, *a = map(int, open(0).read().split())
print(n, sum(a), a)
