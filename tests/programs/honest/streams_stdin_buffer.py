# name: streams: stdin.buffer
# input: "1 2\n3"
# output: "6\n"
# ---
import sys
print(sum(map(int, sys.stdin.buffer.read().split())))
