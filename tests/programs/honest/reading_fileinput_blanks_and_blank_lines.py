# name: reading: fileinput: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
import fileinput
n, *a = [int(x) for l in fileinput.input() for x in l.split()]
print(n, sum(a), a)
