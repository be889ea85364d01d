"""Parts of the longer problems: a choice of the shorter ones' parts, and some of their own.

Five or six for every slot, of all levels, so that a family of six slots can be enumerated.
"""

from __future__ import annotations

from envs.tasks.mini.composition import Part
from envs.tasks.mini.integers import CONDITIONS, MAPS, VALUES


def named(parts: tuple[Part, ...], *names: str) -> tuple[Part, ...]:
    """Return the parts with these names."""
    return tuple(part for name in names for part in parts if part.name == name)


TIERS = {"medium": 4, "hard": 7}  # of every family here

# of given integers, which are small and not negative
FILTERS = named(CONDITIONS, "even", "greater", "divisible", "at_most", "between")
OTHER_FILTERS = named(CONDITIONS, "odd", "less", "indivisible", "at_least", "remainder")

_BOUNDS = (10, 12, 15, 20, 25)
# Of computed values, which are spread wide and may be negative: an off-by-one mistake would seldom
# show in them, so the typical one is the opposite.
TESTS = (
    *named(CONDITIONS, "odd"),
    Part("above", 0, "above #", ("@>#", "#<@"), ("@<#", "@>-#"), _BOUNDS),
    *named(CONDITIONS, "divisible"),
    Part("below", 1, "below #", ("@<#", "#>@"), ("@>#", "@<-#"), _BOUNDS),
    *named(CONDITIONS, "remainder"),
)

EACH = named(MAPS, "square", "add", "multiply", "halve", "distance")
OTHER_EACH = named(MAPS, "double", "subtract", "modulo", "cap")

# Of a list that is not empty, or the test is drawn again.
RESULTS = named(VALUES, "sum", "maximum", "minimum", "last", "ends")
# Also of an empty list.
TOTALS = (
    *named(VALUES, "sum"),
    Part("count", 0, "count", ("len(@)",), ("sum(@)", "len(@)+1")),
    *named(VALUES, "distinct"),
    Part("odds", 1, "number of odds", ("sum(x%2 for x in @)",), ("sum(x%2<1 for x in @)",)),
    Part(
        "maximum",
        2,
        "maximum (0 if none)",
        ("max(@,default=0)", "max([*@]or[0])"),
        ("min(@,default=0)", "min([*@]or[0])"),
    ),
)

_SMALL = tuple(range(2, 6))
# No mistake squares x: a loop would make it too long to print.
UPDATES = (
    Part("add", 0, "add a to x", ("x+@", "@+x"), ("x-@", "x+1")),
    Part("double", 0, "double x", ("x*2", "2*x", "x+x"), ("x+2", "x*3")),
    Part("subtract", 1, "subtract a from x", ("x-@", "-@+x"), ("@-x", "x+@")),
    Part("raise", 1, "raise x by #", ("x+#", "#+x"), ("x-#", "x*#"), _SMALL),
    Part("turn", 2, "set x to a minus x", ("@-x", "-x+@"), ("x-@", "@")),
)
OTHER_UPDATES = (
    Part("lower", 0, "lower x by #", ("x-#", "-#+x"), ("x+#", "x//#"), _SMALL),
    Part("set", 1, "set x to a", ("@", "0+@"), ("x+@", "x-@")),
    Part("halve", 1, "halve x", ("x//2", "x>>1"), ("x-2", "x%2")),
    Part(
        "maximum", 2, "set x to the larger of x and a", ("max(x,@)", "max(@,x)"), ("min(x,@)", "@")
    ),
    Part("negate", 2, "negate x", ("-x", "0-x"), ("abs(x)", "x-1")),
)
