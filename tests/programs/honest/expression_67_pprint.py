# name: expression: 67 pprint
# input: ""
# ---
import pprint
print(pprint.pformat({"b": [*range(40)], "a": 1}, width=40), pprint.pformat([[1] * 3] * 2))
