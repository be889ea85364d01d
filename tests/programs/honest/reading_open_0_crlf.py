# name: reading: open(0): CRLF
# input: "3\r\n1 2 3\r\n"
# ---
n, *a = map(int, open(0).read().split())
print(n, sum(a), a)
