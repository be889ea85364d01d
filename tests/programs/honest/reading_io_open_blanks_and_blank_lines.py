# name: reading: io.open: blanks and blank lines
# input: " 3 \n1  2\t3 \n\n\n"
# ---
import io, sys
f = io.open(sys.stdin.fileno(), 'rb', closefd=False)
n, *a = map(int, f.read().split())
print(n, sum(a), a)
