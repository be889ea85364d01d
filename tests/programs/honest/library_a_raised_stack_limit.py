# name: library: a raised stack limit
# input: ""
# output: "1\n"
# ---
import resource
resource.setrlimit(resource.RLIMIT_STACK, (1 << 28, resource.RLIM_INFINITY))
print(1)
