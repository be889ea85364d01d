# name: script: dataclasses
# input: "5\r\n7 8\r\nend\r\n"
# ---
from dataclasses import *
@dataclass(order=True, frozen=True, slots=True)
class P:
    x: int
    y: list = field(default_factory=list, compare=False)
print(P(1), P(1) < P(2), hash(P(3)) == hash((3,)), replace(P(1), x=5), astuple(P(1, [2])))
try: P(1).x = 2
except FrozenInstanceError as e: print(e)
