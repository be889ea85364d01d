# name: reading: /dev/stdin: no last newline
# input: "3\n1 2 3"
# ---
n, *a = map(int, open('/dev/stdin').read().split())
print(n, sum(a), a)
