# name: library: pickle of one's own class
# input: ""
# output: "1 1\n"
# ---
import copy, pickle
class A:
    x = 1
print(pickle.loads(pickle.dumps(A())).x, copy.deepcopy(A()).x)
