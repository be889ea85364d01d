# name: script: big integers
# input: "5\r\n7 8\r\nend\r\n"
# ---
a = 3**5000
print(a % 10**9, a.bit_length(), (a // 7**900) % 10**9, str(a)[:9], int(str(a)) == a, a >> 7900, isinstance(a, int))
f = 1
for i in range(1, 1000): f *= i
print(f)
