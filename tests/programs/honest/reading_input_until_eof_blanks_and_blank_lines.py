# name: reading: input until EOF: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
a = []
try:
    while True: a += map(int, input().split())
except EOFError: n = 0
print(n, sum(a), a)
