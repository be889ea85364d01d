# name: calls: annotations of the sites
# function: f
# input: [[3, 1]]
# output: 3
# ---
class Solution:
    def f(self, a: List[int]) -> Optional[int]: return max(a)
