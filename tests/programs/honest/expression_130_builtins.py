# name: expression: 130 builtins
# input: ""
# ---
import builtins
print(eval("1 + 1"), exec("x = 5") or x, compile("1", "a", "eval").co_filename, globals()["__name__"], __name__, __doc__)
