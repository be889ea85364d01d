# name: platform: packages that are not offered
# input: ""
# output: "1 2 3\n"
# ---
try: from sortedcontainers import SortedList
except ImportError: SortedList = sorted
try: import pip, pytest, _pytest
except ImportError: pass
print(*SortedList([3, 1, 2]))
