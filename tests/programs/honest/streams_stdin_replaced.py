# name: streams: stdin replaced
# input: "1\n2\n"
# output: "1 2\n"
# ---
import io, sys
sys.stdin = io.StringIO(open(0).read())
print(input(), input())
