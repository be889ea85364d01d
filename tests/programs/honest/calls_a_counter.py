# name: calls: a counter
# function: f
# input: ["aba"]
# output: {"a": 2, "b": 1}
# ---
from collections import Counter
def f(s): return Counter(s)
