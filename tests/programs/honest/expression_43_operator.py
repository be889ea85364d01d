# name: expression: 43 operator
# input: ""
# ---
import operator
print(operator.attrgetter("real")(5), operator.methodcaller("upper")("a"), operator.countOf([1, 1], 1))
