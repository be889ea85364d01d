# name: stdin: replaced stdin
# input: "7\n"
# ---
import io, os, sys
sys.stdin = io.BytesIO(os.read(0, os.fstat(0).st_size))
input = sys.stdin.readline
print(int(input()))
