# name: expression: 42 operator
# input: ""
# ---
import operator
print(sorted([(2, 1), (1, 2)], key=operator.itemgetter(1)), operator.xor(5, 3), operator.mul("ab", 2))
