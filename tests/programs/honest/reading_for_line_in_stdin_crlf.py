# name: reading: for line in stdin: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import sys
n, *a = [int(x) for line in sys.stdin for x in line.split()]
print(n, sum(a), a)
