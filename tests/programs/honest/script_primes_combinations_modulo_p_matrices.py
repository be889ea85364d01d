# name: script: primes, combinations modulo p, matrices
# input: "5\r\n7 8\r\nend\r\n"
# ---
p = 10**9 + 7
fact = [1]
for i in range(1, 2000): fact.append(fact[-1] * i % p)
print(fact[-1] * pow(fact[7], p - 2, p) % p)
sieve = bytearray([1]) * 1000
for i in range(2, 32):
    if sieve[i]: sieve[i * i::i] = bytes(len(sieve[i * i::i]))
print(sum(sieve) - 2, [*zip(*[[1, 2], [3, 4]])])
