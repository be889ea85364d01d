# name: reading: input until EOF: two lines
# input: "3\n1 2 3\n"
# ---
a = []
try:
    while True: a += map(int, input().split())
except EOFError: n = 0
print(n, sum(a), a)
