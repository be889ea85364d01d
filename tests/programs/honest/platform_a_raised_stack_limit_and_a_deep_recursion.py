# name: platform: a raised stack limit and a deep recursion
# input: ""
# output: "30000\n"
# ---
import resource, sys
hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
for soft in hard, 1 << 29, resource.RLIM_INFINITY:
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
sys.setrecursionlimit(10**6)
def f(n): return n and 1 + f(n - 1)
print(f(30000))
