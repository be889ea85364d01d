"""A counter that each given integer changes in one of two ways."""

from __future__ import annotations

from collections.abc import Sequence

from envs.tasks.mini.integers import CONDITIONS
from envs.tasks.mini.parts import Code, Family, Part, int_line

_SMALL = tuple(range(2, 6))
_UPDATES = (
    Part("add", 0, "add a to x", ("x+@", "@+x"), ("x-@", "x*@")),
    Part("increment", 0, "increment x", ("x+1", "1+x"), ("x-1", "1")),
    Part("double", 0, "double x", ("x*2", "2*x", "x+x"), ("x**2", "x+2")),
    Part("subtract", 1, "subtract a from x", ("x-@", "-@+x"), ("@-x", "x+@")),
    Part("set", 1, "set x to a", ("@", "0+@"), ("x+@", "x-@")),
    Part("raise", 1, "raise x by #", ("x+#", "#+x"), ("x*#", "x-#"), _SMALL),
    Part("multiply", 1, "multiply x by #", ("x*#", "#*x"), ("x+#", "x**2"), _SMALL[1:]),
    Part(
        "maximum", 2, "set x to the larger of x and a", ("max(x,@)", "max(@,x)"), ("min(x,@)", "@")
    ),
    Part("halve", 2, "halve x", ("x//2", "x>>1"), ("x/2", "x%2")),
    Part("negate", 2, "negate x", ("-x", "0-x"), ("abs(x)", "x-1")),
    Part("xor", 2, "xor a into x", ("x^@", "@^x"), ("x|@", "x&@")),
    Part("turn", 2, "set x to a minus x", ("@-x", "-x+@"), ("x-@", "@")),
    Part("reset", 2, "reset x", ("0", "x*0"), ("1", "x")),
)
_FORMS = (
    "x=0\nfor a in {ints}:\n if {cond:a}:x={then:a}\n else:x={other:a}\nprint(x)",
    "x=0\nfor a in {ints}:x={then:a} if {cond:a} else {other:a}\nprint(x)",
    "x=0\nfor a in {ints}:\n y={other:a}\n if {cond:a}:y={then:a}\n x=y\nprint(x)",
    "f=lambda x,a:{then:a} if {cond:a} else {other:a}\nx=0\nfor a in {ints}:x=f(x,a)\nprint(x)",
    "x=0\nv={list}\nwhile v:\n a=v.pop(0)\n if {cond:a}:x={then:a}\n else:x={other:a}\nprint(x)",
)


def _forms(codes: dict[str, Code]) -> Sequence[str]:
    return _FORMS


SIMULATION = Family(
    name="simulation",
    slots=(("cond", CONDITIONS), ("then", _UPDATES), ("other", _UPDATES)),
    statement="x is 0. For each given integer a: if a is {cond}, {then}, else {other}. Print x.",
    forms=_forms,
    stdin=int_line,
)
