# name: expression: 44 array
# input: ""
# ---
import array
print(array.array("i", [1, 2, 3]), array.array("d", [1.5]).tobytes().hex(), array.array("b", b"ab").itemsize)
