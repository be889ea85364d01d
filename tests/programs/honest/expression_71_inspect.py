# name: expression: 71 inspect
# input: ""
# ---
import inspect
print(inspect.signature(lambda a, *b, c=1: 0), inspect.isgenerator(x for x in ""), inspect.getmro(bool))
