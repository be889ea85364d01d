# name: library: recursion right below the limit
# input: ""
# output: "998\ntoo deep\n"
# ---
def f(n): return n and 1 + f(n - 1)
print(f(998))
try: f(999)
except RecursionError: print('too deep')
