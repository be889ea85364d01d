# name: expression: 16 collections
# input: ""
# ---
import collections
print((d := collections.OrderedDict(a=1, b=2), d.move_to_end("a"), d.popitem(last=False), d))
