# name: stdin: empty
# input: ""
# ---
import sys
print(repr(sys.stdin.read()))
