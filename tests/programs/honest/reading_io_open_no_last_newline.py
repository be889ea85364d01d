# name: reading: io.open: no last newline
# input: "3\n1 2 3"
# ---
import io, sys
f = io.open(sys.stdin.fileno(), 'rb', closefd=False)
n, *a = map(int, f.read().split())
print(n, sum(a), a)
