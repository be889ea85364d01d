# name: reading: /dev/stdin: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
n, *a = map(int, open('/dev/stdin').read().split())
print(n, sum(a), a)
