# name: expression: 72 inspect
# input: ""
# ---
import inspect
print(len(inspect.stack()), inspect.currentframe().f_back, (lambda: len(inspect.stack()))())
