# name: expression: 0 heapq
# input: ""
# ---
import heapq
print(heapq.nsmallest(3, [5, 1, 4, 2]), heapq.nlargest(2, "hello"), [*heapq.merge([1, 4], [2, 3])])
