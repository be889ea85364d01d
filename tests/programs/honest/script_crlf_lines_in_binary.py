# name: script: CRLF lines in binary
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
print(sys.stdin.buffer.readlines())
