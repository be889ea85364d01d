# name: reading: fileinput: two lines
# input: "3\n1 2 3\n"
# ---
import fileinput
n, *a = [int(x) for l in fileinput.input() for x in l.split()]
print(n, sum(a), a)
