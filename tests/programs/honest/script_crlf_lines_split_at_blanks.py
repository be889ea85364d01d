# name: script: CRLF lines split at blanks
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
n = sys.stdin.readline()
print(ascii(n), [ascii(x) for x in sys.stdin.readline().split(' ')], ascii(input()))
