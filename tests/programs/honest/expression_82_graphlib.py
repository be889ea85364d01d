# name: expression: 82 graphlib
# input: ""
# ---
import graphlib
print([*graphlib.TopologicalSorter({"a": ["b"], "b": ["c"]}).static_order()])
