# name: script: sys.stdin replaced
# input: "5\r\n7 8\r\nend\r\n"
# ---
import io, sys
sys.stdin = io.StringIO('5\n6')
print(int(input()) + int(input()))
