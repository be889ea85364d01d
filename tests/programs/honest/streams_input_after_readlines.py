# name: streams: input after readlines
# input: "1\n2\n"
# output: "2\nend\n"
# ---
import sys
print(len(sys.stdin.readlines()))
try:
    input()
except EOFError:
    print('end')
