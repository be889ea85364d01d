# name: reading: /dev/stdin: two lines
# input: "3\n1 2 3\n"
# ---
n, *a = map(int, open('/dev/stdin').read().split())
print(n, sum(a), a)
