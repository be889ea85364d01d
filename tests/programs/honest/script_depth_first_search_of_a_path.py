# name: script: depth-first search of a path
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
sys.setrecursionlimit(1 << 20)
n = 5000
g = [[i + 1] for i in range(n)] + [[]]
size = [1] * (n + 1)
def dfs(v):
    for u in g[v]: dfs(u); size[v] += size[u]
dfs(0)
print(size[0])
