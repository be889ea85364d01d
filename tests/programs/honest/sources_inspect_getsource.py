# name: sources: inspect.getsource
# input: ""
# output: "def f():\n    return 1\n"
# ---
import inspect
def f():
    return 1
print(inspect.getsource(f), end='')
