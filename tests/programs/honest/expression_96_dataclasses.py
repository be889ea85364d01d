# name: expression: 96 dataclasses
# input: ""
# ---
import dataclasses
print(dataclasses.make_dataclass("P", ["x", ("y", int, 2)])(1), dataclasses.asdict(dataclasses.make_dataclass("Q", ["z"])(3)))
