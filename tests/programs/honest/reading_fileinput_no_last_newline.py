# name: reading: fileinput: no last newline
# input: "3\n1 2 3"
# ---
import fileinput
n, *a = [int(x) for l in fileinput.input() for x in l.split()]
print(n, sum(a), a)
