# name: expression: 1 heapq
# input: ""
# ---
import heapq
print((h := [3, 1, 2], heapq.heapify(h), heapq.heappushpop(h, 0), heapq.heapreplace(h, 9), h))
