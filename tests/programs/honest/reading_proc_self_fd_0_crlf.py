# name: reading: /proc/self/fd/0: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
n, *a = map(int, open('/proc/self/fd/0').read().split())
print(n, sum(a), a)
