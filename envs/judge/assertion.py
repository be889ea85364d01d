"""The condition that an assert of a data set puts on a called function's result.

HumanEval and MBPP state their tests as asserts. A test keeps the assert's condition as a text in
which `result` stands for the call: `result == [1, 2]`, `result is None`, `not result`,
`abs(result - 0.5) < 1e-06`, `math.isclose(result, 2.0, rel_tol=1e-09, abs_tol=0.0)`. Literals are
parsed and never run.
"""

from __future__ import annotations

import ast
import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

from envs.judge.returned_values import is_decimal, number, python_equal, truth

_SHORT_DIGITS_BITS = 10_000  # longer integers are written as hexadecimal: Python limits the digits


@dataclass(frozen=True)
class Condition:
    """A condition on `result`; `value` is what it is compared with."""

    kind: Literal["==", "is", "true", "false", "within", "isclose"]
    value: Any = None
    absolute: float = 0.0  # tolerance of `within` and `isclose`
    relative: float = 0.0  # tolerance of `isclose`
    inclusive: bool = False  # `within`: <= instead of <

    def text(self) -> str:
        """Return the condition as Python writes it."""
        if self.kind in ("==", "is"):
            return f"result {self.kind} {literal_text(self.value)}"
        if self.kind == "within":
            operator = "<=" if self.inclusive else "<"
            return f"abs(result - {literal_text(self.value)}) {operator} {self.absolute!r}"
        if self.kind == "isclose":
            tolerances = f"rel_tol={self.relative!r}, abs_tol={self.absolute!r}"
            return f"math.isclose(result, {literal_text(self.value)}, {tolerances})"
        return "result" if self.kind == "true" else "not result"

    def holds(self, returned: Any) -> bool:
        """Return whether the condition holds for a parsed result."""
        if self.kind == "==":
            return python_equal(self.value, returned)
        if self.kind == "is":
            return returned is self.value
        if self.kind in ("true", "false"):
            return truth(returned) == (self.kind == "true")
        try:
            found: Any = number(returned)
            if self.kind == "isclose":
                tolerances = {"rel_tol": self.relative, "abs_tol": self.absolute}
                return math.isclose(found, self.value, **tolerances)
            if is_decimal(returned) and not isinstance(self.value, int):
                return False
            difference = abs(found - self.value)
        except (TypeError, OverflowError):  # no number, or none of this size: the assert fails too
            return False
        return difference <= self.absolute if self.inclusive else difference < self.absolute


@functools.lru_cache(maxsize=1024)
def parse_condition(text: str) -> Condition:
    """Invert `Condition.text`. Raises ValueError."""
    try:
        node = ast.parse(text, mode="eval").body
        match node:
            case ast.Name("result"):
                return Condition("true")
            case ast.UnaryOp(ast.Not(), ast.Name("result")):
                return Condition("false")
            case ast.Compare(ast.Name("result"), [ast.Eq()], [value]):
                return Condition("==", ast.literal_eval(value))
            case ast.Compare(ast.Name("result"), [ast.Is()], [ast.Constant(None | True | False)]):
                return Condition("is", ast.literal_eval(node.comparators[0]))
            case ast.Compare(
                ast.Call(ast.Name("abs"), [ast.BinOp(ast.Name("result"), ast.Sub(), value)]),
                [ast.Lt() | ast.LtE() as operator],
                [within],
            ):
                value, within = ast.literal_eval(value), ast.literal_eval(within)
                return Condition("within", value, within, inclusive=isinstance(operator, ast.LtE))
            case ast.Call(
                ast.Attribute(ast.Name("math"), "isclose"),
                [ast.Name("result"), value],
                [ast.keyword("rel_tol", relative), ast.keyword("abs_tol", absolute)],
            ):
                numbers = map(ast.literal_eval, (value, absolute, relative))
                return Condition("isclose", *numbers)
    except (SyntaxError, TypeError, RecursionError, MemoryError):
        pass
    raise ValueError(f"no condition on a result: {text[:80]!r}")


def literal_text(value: Any) -> str:
    """Return a literal that `ast.literal_eval` turns into an equal value of the same type."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal_text, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal_text, value))}{',' * (len(value) == 1)})"
    if isinstance(value, set):
        return f"{{{', '.join(sorted(map(literal_text, value)))}}}" if value else "set()"
    if isinstance(value, dict):
        pairs = (f"{literal_text(key)}: {literal_text(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if type(value) is int and value.bit_length() > _SHORT_DIGITS_BITS:
        return hex(value)
    return (
        repr(value).replace("inf", "1e999") if isinstance(value, float | complex) else repr(value)
    )
