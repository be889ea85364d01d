# name: expression: 68 enum
# input: ""
# ---
import enum
print(enum.Enum("E", "A B").B, enum.IntFlag("F", "X Y")(3), [*enum.Enum("E", "A B")], enum.auto is not None)
