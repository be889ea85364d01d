# name: reading: /proc/self/fd/0: two lines
# input: "3\n1 2 3\n"
# ---
n, *a = map(int, open('/proc/self/fd/0').read().split())
print(n, sum(a), a)
