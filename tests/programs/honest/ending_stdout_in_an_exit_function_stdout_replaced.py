# name: ending: __stdout__ in an exit function, stdout replaced
# input: ""
# output: "1\n"
# ---
import atexit, io, sys
sys.stdout = out = io.StringIO()
@atexit.register
def write(): sys.__stdout__.write(out.getvalue())
print(1)
