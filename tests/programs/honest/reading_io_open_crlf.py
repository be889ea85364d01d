# name: reading: io.open: CRLF
# input: "3\r\n1 2 3\r\n"
# ---
import io, sys
f = io.open(sys.stdin.fileno(), 'rb', closefd=False)
n, *a = map(int, f.read().split())
print(n, sum(a), a)
