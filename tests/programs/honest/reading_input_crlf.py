# name: reading: input: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
n = int(input())
a = [int(x) for x in input().split()]
print(n, sum(a), a)
