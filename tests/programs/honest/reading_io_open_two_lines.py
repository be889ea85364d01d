# name: reading: io.open: two lines
# input: "3\n1 2 3\n"
# ---
import io, sys
f = io.open(sys.stdin.fileno(), 'rb', closefd=False)
n, *a = map(int, f.read().split())
print(n, sum(a), a)
