# name: expression: 97 contextlib
# input: ""
# ---
import contextlib
print(contextlib.nullcontext(5).__enter__(), [c := contextlib.ExitStack(), c.callback(print, "cb"), c.close()][1:] and 1)
