"""Filter, map and reduce over one line of integers."""

from __future__ import annotations

from collections.abc import Sequence

from envs.tasks.mini.integers import CONDITIONS, LISTINGS, MAPS, VALUES
from envs.tasks.mini.parts import Code, Family, int_line, simple_enough

_INLINE = (
    "print({reduce:[{map} for x in {ints} if {cond}]})",
    "a={ints}\nprint({reduce:[{map} for x in a if {cond}]})",
    "a=[x for x in {ints} if {cond}]\nprint({reduce:[{map} for x in a]})",
    "a=filter(lambda x:{cond},{ints})\nprint({reduce:[{map} for x in a]})",
)
_NAMED = (
    "b=[{map} for x in {ints} if {cond}]\nprint({reduce:b})",
    "b=[]\nfor x in {ints}:\n if {cond}:b.append({map})\nprint({reduce:b})",
    "b=[]\nfor x in {ints}:\n if {cond}:b+=[{map}]\nprint({reduce:b})",
)


def _forms(codes: dict[str, Code]) -> Sequence[str]:
    return simple_enough(codes, "reduce", _INLINE, _NAMED)


FOLD = Family(
    name="fold",
    slots=(("cond", CONDITIONS), ("map", MAPS), ("reduce", VALUES + LISTINGS[1:])),
    statement="Given integers, keep those {cond}, {map}, print the {reduce}.",
    forms=_forms,
    stdin=int_line,
)
