# name: script: resource limits
# input: "5\r\n7 8\r\nend\r\n"
# ---
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0, len(resource.getrlimit(resource.RLIMIT_STACK)))
