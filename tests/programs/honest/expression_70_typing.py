# name: expression: 70 typing
# input: ""
# ---
import typing
print(typing.get_type_hints(lambda: 0), typing.List[int], typing.Optional[int], typing.cast(int, "a"))
