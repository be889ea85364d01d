# name: ending: a file beside annotated classes
# input: ""
# output: "1\n"
# ---
from typing import List, Optional
out = open(1, 'w')
class Node:
    next: Optional['Node'] = None
def f(nodes: List[Node]): out.write('1\n')
f([])
