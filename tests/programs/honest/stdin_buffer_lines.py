# name: stdin: buffer lines
# input: "1\n2\n3\n4"
# ---
import sys
b = sys.stdin.buffer
print(b.readline(), b.readline(), b.read())
