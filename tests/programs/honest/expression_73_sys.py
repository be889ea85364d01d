# name: expression: 73 sys
# input: ""
# ---
import sys
print(sys.getrecursionlimit(), sys.maxsize, sys.byteorder, sys.argv, sys.getsizeof(0), sys.version_info[:2])
