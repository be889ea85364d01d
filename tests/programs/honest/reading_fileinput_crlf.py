# name: reading: fileinput: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import fileinput
n, *a = [int(x) for l in fileinput.input() for x in l.split()]
print(n, sum(a), a)
