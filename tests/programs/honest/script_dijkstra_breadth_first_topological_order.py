# name: script: Dijkstra, breadth first, topological order
# input: "5\r\n7 8\r\nend\r\n"
# ---
import heapq
from collections import deque, defaultdict
g = defaultdict(list)
for a, b, w in [(0, 1, 4), (0, 2, 1), (2, 1, 2), (1, 3, 5)]: g[a].append((b, w))
d, h = {0: 0}, [(0, 0)]
while h:
    c, v = heapq.heappop(h)
    for u, w in g[v]:
        if c + w < d.get(u, 1e9): d[u] = c + w; heapq.heappush(h, (c + w, u))
print(d)
q, seen = deque([0]), {0}
while q:
    for u, _ in g[q.popleft()]:
        if u not in seen: seen.add(u); q.append(u)
print(seen)
