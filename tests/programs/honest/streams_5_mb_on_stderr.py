# name: streams: 5 MB on stderr
# input: ""
# output: "1\n"
# ---
import sys
for i in range(50000): print('x' * 99, file=sys.stderr)
print(1)
