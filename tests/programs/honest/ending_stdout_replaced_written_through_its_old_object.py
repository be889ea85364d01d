# name: ending: stdout replaced, written through its old object
# input: ""
# output: "1\n"
# ---
import io, sys
old = sys.stdout
sys.stdout = io.StringIO()
print('x')
old.write('1\n')
