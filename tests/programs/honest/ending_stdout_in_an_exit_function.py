# name: ending: __stdout__ in an exit function
# input: ""
# output: "1\n"
# ---
import atexit, io, sys
buffer = io.BytesIO()
sys.stdout.write = lambda s: buffer.write(s.encode())
atexit.register(lambda: sys.__stdout__.buffer.write(buffer.getvalue()))
print(1)
