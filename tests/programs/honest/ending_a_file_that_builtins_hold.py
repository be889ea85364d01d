# name: ending: a file that builtins hold
# input: ""
# output: "1\n"
# ---
import builtins, functools
builtins.print = functools.partial(print, file=open(1, 'w'))
print(1)
