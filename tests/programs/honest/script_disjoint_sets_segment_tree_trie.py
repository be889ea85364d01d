# name: script: disjoint sets, segment tree, trie
# input: "5\r\n7 8\r\nend\r\n"
# ---
class DSU:
    def __init__(self, n): self.p = list(range(n))
    def find(self, x):
        while self.p[x] != x: self.p[x] = x = self.p[self.p[x]]
        return x
    def union(self, a, b): self.p[self.find(a)] = self.find(b)
d = DSU(9); d.union(1, 2); d.union(2, 3); print(d.find(1) == d.find(3))
t = [0] * 16
def add(i, v):
    i += 8
    while i: t[i] += v; i >>= 1
for i in range(8): add(i, i)
print(t[1], t[2])
trie = {}
for w in 'to', 'tea': functools_reduce = __import__('functools').reduce(lambda n, c: n.setdefault(c, {}), w, trie)
print(trie)
