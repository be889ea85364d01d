"""Values that called functions returned, as the sandbox sends them, compared with expected ones.

`envs/sandbox/inside/values.py` describes the form. A hostile program can send anything, so what it
sent is only compared: no set or dictionary is built of its items, since chosen integers would make
one of them take quadratic time, and nothing in it is run or given a method.

`python_equal` compares as Python's `==` does. `json_equal` is for data sets that store results as
JSON (`fn_name` rows of TACO and APPS): a tuple counts as a list, as their own graders have it.

HumanEval and MBPP state their tests as asserts. A test keeps the assert's condition as a text in
which `result` stands for the call: `result == [1, 2]`, `result is None`, `not result`,
`abs(result - 0.5) < 1e-06`, `math.isclose(result, 2.0, rel_tol=1e-09, abs_tol=0.0)`. Literals are
parsed and never run.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

ABSOLUTE_TOLERANCE = RELATIVE_TOLERANCE = 1e-6

Number = bool | int | float | complex | Fraction

_MAX_RATIO_CHARS = 10_000  # reducing a fraction takes quadratic time
_MAX_SHOWN_DEPTH = 3
_MAX_SHOWN_BYTES = 20_000  # of a result that is parsed to be shown
_PLAIN_DIGITS = 4000  # more than Python converts in reasonable time
_SHORT_DIGITS_BITS = 10_000  # longer integers are written as hexadecimal: Python limits the digits


class Digits(str):
    """A JSON integer of more than _PLAIN_DIGITS digits."""


class _Unhashable(ValueError):
    """A value that Python's sets and dictionaries do not hold."""


def parse(text: bytes) -> Any:
    """Parse JSON. Raises ValueError or RecursionError."""
    return json.loads(text.decode("utf-8", "surrogatepass"), parse_int=_parse_int)


def holds_nan(value: Any) -> bool:
    """Return whether a value of `json` holds a NaN, which equals nothing."""
    if isinstance(value, dict):
        return any(map(holds_nan, value.values()))
    return any(map(holds_nan, value)) if isinstance(value, list) else value != value


def python_equal(expected: Any, returned: Any) -> bool:
    """Return whether a literal's value equals a parsed result, as `==` says: True == 1 == 1.0."""
    name, payload = _tag(returned)
    if name == "array":
        return _equal_array(expected, payload, python_equal)
    if isinstance(expected, bool | int | float | complex):
        return number(returned) == expected
    if isinstance(expected, list):
        return _equal_items(expected, returned, python_equal)
    if isinstance(expected, tuple):
        return name == "tuple" and _equal_items(expected, payload, python_equal)
    if isinstance(expected, set):
        return name == "set" and _same_members(expected, payload)
    if isinstance(expected, bytes):
        return name == "bytes" and payload == expected.hex()
    if isinstance(expected, dict):
        return _equal_dict(expected, returned)
    return type(returned) is type(expected) and returned == expected  # a text or None


def json_equal(expected: Any, returned: Any) -> bool:
    """Return whether a value of JSON equals a parsed result.

    Tuples count as lists, and keys are compared as JSON writes them. Where a float is expected, an
    absolute or relative error up to 1e-6 is allowed.
    """
    name, payload = _tag(returned)
    if name == "array":
        return _equal_array(expected, payload, json_equal)
    if isinstance(expected, list):
        return _equal_items(expected, payload if name == "tuple" else returned, json_equal)
    if isinstance(expected, dict):
        pairs = _pairs(returned)
        if pairs is None or len(pairs) != len(expected):
            return False
        found = {_json_key(key): value for key, value in pairs}
        return found.keys() == expected.keys() and all(
            json_equal(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, Digits):
        if isinstance(returned, Digits):
            return returned == expected
        return number(returned) == _parse_digits(expected)
    if isinstance(expected, bool | int | float):
        found_number = number(returned)
        return expected == found_number or (
            isinstance(expected, float) and _close(expected, found_number)
        )
    return type(returned) is type(expected) and returned == expected


def number(returned: Any) -> Number | None:
    """Return the number that a parsed result is, or None."""
    if isinstance(returned, bool | int | float):
        return returned
    name, payload = _tag(returned)
    try:
        if name == "int" and isinstance(payload, str):
            return int(payload, 16)
        if name == "complex":
            real, imaginary = payload
            return complex(real, imaginary)
        if name in ("Fraction", "Decimal"):
            digits = returned[""][1:]
            if sum(map(len, digits)) <= _MAX_RATIO_CHARS:
                return Fraction(*(int(text, 16) for text in digits))
    except (TypeError, ValueError, ArithmeticError):
        pass  # a tag that the sandbox does not write
    return None


def is_decimal(returned: Any) -> bool:
    """Return whether a parsed result is a Decimal, which Python does not subtract from a float."""
    return _tag(returned)[0] == "Decimal"


def truth(returned: Any) -> bool:
    """Return whether a parsed result counts as true."""
    name, payload = _tag(returned)
    if name is None:
        return bool(returned)
    if name == "array":
        return _is_single(payload) and truth(_single(payload))
    if name == "other":
        return returned[""][-1] is True
    return bool(payload if (value := number(returned)) is None else value)


def shown(returned: Any, depth: int = 0) -> str:
    """Return a result roughly as Python writes it, for a message. Takes time of its length."""
    name, payload = _tag(returned)
    if depth == _MAX_SHOWN_DEPTH:
        return "…"
    inner = functools.partial(shown, depth=depth + 1)
    if isinstance(returned, list):
        return f"[{', '.join(map(inner, returned))}]"
    if name == "tuple" and isinstance(payload, list):
        return f"({', '.join(map(inner, payload))}{',' * (len(payload) == 1)})"
    if name == "set" and isinstance(payload, list):
        return f"{{{', '.join(map(inner, payload))}}}" if payload else "set()"
    if (pairs := _pairs(returned)) is not None:
        return f"{{{', '.join(f'{inner(key)}: {inner(value)}' for key, value in pairs)}}}"
    if name in ("other", "array"):
        return f"<{payload if name == 'other' else 'numpy array'}>"
    return repr(returned) if name is None else str(payload)


def shown_result(returned: bytes, most: int) -> str:
    """Return the first `most` characters of what a function returned, as `shown` writes it.

    A result of more than 20 kB, or one that is no JSON, stays as the sandbox sent it.
    """
    if len(returned) <= _MAX_SHOWN_BYTES:
        with contextlib.suppress(ValueError, RecursionError):
            return shown(parse(returned))[:most]
    return returned[: 4 * most].decode("utf-8", "replace")[:most]


def _tag(returned: Any) -> tuple[str | None, Any]:
    """Return (name, payload) of a tag, or (None, None)."""
    if isinstance(returned, dict) and len(returned) == 1:
        match returned.get(""):
            case [str(name), payload, *_]:
                return name, payload
    return None, None


def _equal_items(expected: Any, returned: Any, equal: Any) -> bool:
    if not isinstance(returned, list) or len(returned) != len(expected):
        return False
    return all(map(equal, expected, returned))


def _equal_dict(expected: dict[Any, Any], returned: Any) -> bool:
    pairs = _pairs(returned)
    if pairs is None or not _same_members(expected.keys(), [key for key, _ in pairs]):
        return False
    return all(python_equal(expected[_hashable(key)], value) for key, value in pairs)


def _same_members(expected: Any, returned: Any) -> bool:
    """Return whether a list holds the members of a set (or keys), each once.

    Hashes of returned values are only looked up among expected ones, never stored.
    """
    if not isinstance(returned, list) or len(returned) != len(expected):
        return False
    try:
        members = [member for member in map(_hashable, returned) if member in expected]
    except _Unhashable:
        return False
    return len(members) == len(set(members)) == len(expected)


def _hashable(returned: Any) -> Any:
    """Return the Python value of a result that can be a member of a set."""
    if returned is None or isinstance(returned, str):
        return returned
    if (value := number(returned)) is not None:
        return value
    name, payload = _tag(returned)
    if name == "tuple" and isinstance(payload, list):
        return tuple(map(_hashable, payload))
    if name == "bytes" and isinstance(payload, str):
        return bytes.fromhex(payload)
    raise _Unhashable


def _pairs(returned: Any) -> list[Any] | None:
    """Return the (key, value) pairs of a dictionary; None for another value."""
    name, payload = _tag(returned)
    if name is None:
        return list(returned.items()) if isinstance(returned, dict) else None
    if name != "dict" or not isinstance(payload, list):
        return None
    pairs = [pair for pair in payload if isinstance(pair, list) and len(pair) == 2]
    return pairs if len(pairs) == len(payload) else None


def _json_key(key: Any) -> str | None:
    """Return a key as JSON writes it; None for one that JSON does not write."""
    if isinstance(key, str):
        return key
    value = number(key)
    return json.dumps(value) if isinstance(value, int | float) or key is None else None


def _equal_array(expected: Any, array: Any, equal: Any) -> bool:
    """Compare numpy's array as an `assert` does: only a single comparison has a truth value."""
    return _is_single(array) and _is_single(expected) and equal(_single(expected), _single(array))


def _is_single(value: Any) -> bool:
    return not isinstance(value, list | tuple) or (len(value) == 1 and _is_single(value[0]))


def _single(value: Any) -> Any:
    while isinstance(value, list | tuple):
        value = value[0]
    return value


def _close(expected: float, found: Number | None) -> bool:
    if found is None or isinstance(found, complex):
        return False
    try:
        found = float(found)
    except OverflowError:
        return False
    if not (math.isfinite(expected) and math.isfinite(found)):
        return False
    return abs(expected - found) <= max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * abs(expected))


def _parse_int(digits: str) -> int | Digits:
    return int(digits) if len(digits) <= _PLAIN_DIGITS else Digits(digits)


@functools.lru_cache(maxsize=64)
def _parse_digits(digits: str) -> int:
    """Return the integer that an expected value's digits are; halves keep that fast."""
    if len(digits) <= _PLAIN_DIGITS:
        return int(digits or "0")
    if digits.startswith("-"):
        return -_parse_digits(digits[1:])
    half = len(digits) // 2
    low = digits[half:]
    return _parse_digits(digits[:half]) * 10 ** len(low) + _parse_digits(low)


# ---- conditions of asserts ----


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
