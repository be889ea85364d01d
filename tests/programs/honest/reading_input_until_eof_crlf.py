# name: reading: input until EOF: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
a = []
try:
    while True: a += map(int, input().split())
except EOFError: n = 0
print(n, sum(a), a)
