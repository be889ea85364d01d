# name: library: dataclasses, enums, type hints
# input: ""
# output: "True 1 True\n"
# ---
import enum, typing
from dataclasses import dataclass, field
@dataclass(order=True)
class A:
    x: int
    y: 'A' = field(default=None)
class E(enum.Enum):
    B = enum.auto()
print(A(1) < A(2), E.B.value, typing.get_type_hints(A)['y'] is A)
