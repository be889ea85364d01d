# name: calls: its own module
# function: f
# input: [2]
# output: [2, true]
# ---
import pickle, sys
from dataclasses import dataclass
@dataclass
class P:
    x: 'int'
def f(a): return [pickle.loads(pickle.dumps(P(a))).x, sys.modules[__name__].f is f]
