# name: sources: from __future__
# input: ""
# output: "Missing doc\n"
# ---
'''doc'''
from __future__ import annotations
def f(x: Missing) -> None: pass
print(f.__annotations__['x'], __doc__)
