# name: calls: a method of Solution
# function: f
# input: [[1, 2]]
# output: [2, 1]
# ---
class Solution:
    def f(self, a): return a[::-1]
