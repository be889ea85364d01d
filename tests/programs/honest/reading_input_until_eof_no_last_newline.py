# name: reading: input until EOF: no last newline
# input: "3\n1 2 3"
# ---
a = []
try:
    while True: a += map(int, input().split())
except EOFError: n = 0
print(n, sum(a), a)
