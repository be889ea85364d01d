"""Checkers: compare what a program printed, or its function returned, with what is expected.

Printed outputs are split at whitespace, so line structure does not matter; the number of tokens
must match. The problem's `checker` decides how two tokens may differ: a name, and options as in
`floats absolute=1e-09 relative=0.0` or `text case=any`. Numbers are converted to doubles only if
one of them is a float literal: integers of any size are compared exactly.

A returned value comes as the sandbox sends it (`envs/sandbox/inside/framing.py`). A hostile program
can send anything, so what it sent is only compared: no set or dictionary is built of its items,
since chosen integers would make one of them take quadratic time, and nothing in it is run or given
a method. `python_equal` compares as Python's `==` does. `json_equal` is for data sets that store
results as JSON (`fn_name` rows of TACO and APPS): a tuple counts as a list, as their own graders
have it.

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
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar

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

    def parse_int(digits: str) -> int | Digits:
        return int(digits) if len(digits) <= _PLAIN_DIGITS else Digits(digits)

    return json.loads(text.decode("utf-8", "surrogatepass"), parse_int=parse_int)


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
        pairs = _pairs(returned)
        if pairs is None or not _same_members(expected.keys(), [key for key, _ in pairs]):
            return False
        return all(python_equal(expected[_hashable(key)], value) for key, value in pairs)
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
        found_number: Any = number(returned)
        try:
            near = isinstance(expected, float) and _close(expected, float(found_number))
        except (TypeError, OverflowError):  # no real number, or none of this size
            near = False
        return near or expected == found_number
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
            if _tag(returned)[0] == "Decimal" and not isinstance(self.value, int):
                return False  # Python does not subtract a float from it
            difference = abs(found - self.value)
        except (TypeError, OverflowError):  # no number, or none of this size: the assert fails too
            return False
        return difference <= self.absolute if self.inclusive else difference < self.absolute


@functools.lru_cache(maxsize=1024)
def parse_condition(text: str) -> Condition:
    """Invert `Condition.text`. Raises ValueError."""

    def result(node: ast.expr) -> ast.expr:
        if not isinstance(node, ast.Name) or node.id != "result":
            raise ValueError
        return node

    try:
        return read_condition(ast.parse(text, mode="eval").body, ast.Name, result)[1]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"no condition on a result: {text[:80]!r}") from None


Subject = TypeVar("Subject", bound=ast.expr)


def read_condition(
    test: ast.expr,
    kind: type[ast.expr],
    subject: Callable[[ast.expr], Subject],
    literal: Callable[[ast.expr], Any] = ast.literal_eval,
) -> tuple[Subject, Condition]:
    """Return (what an assert is about, the condition that it puts on that).

    `kind` is the type of node that tells the subject from a literal on the other side. `subject`
    and `literal` check or evaluate one side, and raise an error of theirs for any other node.
    """

    def sides(left: ast.expr, right: ast.expr) -> tuple[Subject, Any]:
        about, other = (left, right) if isinstance(left, kind) else (right, left)
        return subject(about), literal(other)

    match test:
        case ast.Compare(
            ast.Call(ast.Name("abs"), [ast.BinOp(left, ast.Sub(), right)]),
            [ast.Lt() | ast.LtE() as operator],
            [within],
        ):
            about, value = sides(left, right)
            inclusive = isinstance(operator, ast.LtE)
            return about, Condition("within", value, literal(within), inclusive=inclusive)
        case ast.Call(
            ast.Name("isclose") | ast.Attribute(ast.Name("math"), "isclose"), [left, right], others
        ):
            about, value = sides(left, right)
            tolerances: dict[str | None, Any] = {"abs_tol": 0.0, "rel_tol": 1e-9}
            tolerances |= {keyword.arg: literal(keyword.value) for keyword in others}
            return about, Condition("isclose", value, tolerances["abs_tol"], tolerances["rel_tol"])
        case ast.Compare(left, [ast.Eq()], [right]):
            about, value = sides(left, right)
            return about, Condition("==", value)
        case ast.Compare(left, [ast.Is()], [ast.Constant(None | True | False as value)]):
            return subject(left), Condition("is", value)
        case ast.UnaryOp(ast.Not(), operand):
            return subject(operand), Condition("false")
    return subject(test), Condition("true")


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


TOKEN_CHECKERS = ("tokens", "text", "floats", "rounded", "case_insensitive")
_LONGER_TIMES, _LONGER_BYTES = 64, 4096  # a longer returned value cannot be the expected one

# Possessive quantifiers prevent backtracking: a hostile output may hold millions of digits.
INTEGER = re.compile(rb"[+-]?+[0-9]++")
_NUMBER = re.compile(rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")


def check(checker: str, expected: str, actual: bytes | str) -> tuple[bool, str]:
    """Return (whether `actual` is accepted, the difference if not).

    `tokens`: equal text, or two integers of equal value (007 is 7, at any size).
    `text`: equal text only, for strings of digits (00101 is not 101).
    `floats`: like `tokens`; if either token is a float literal and both are numbers, an absolute or
    relative error up to 1e-6 is accepted too, or up to the options `absolute` and `relative`.
    Without these options, an error from an integer literal must also be below 1/2. So 1.0 and
    0.9999999 match 1, and 123456700.0 does not match 123456789. Beyond 2**53, where doubles cannot
    represent all integers, only the nearest double matches.
    `rounded`: like `tokens`; two numbers also match if all their digits do (4.3 is 4.30).
    `case_insensitive`: like `tokens`, ignoring case, as the option `case=any` does.
    `call`: a value in JSON, and what a function returned (`json_equal`).
    `assert`: the condition of a data set's assert, and what a function returned (`Condition`).

    Raises ValueError for any other checker, including `needs_checker` (no comparison can decide a
    problem that accepts any valid answer), and where `comparable` is False.
    """
    expected_bytes, actual_bytes = as_bytes(expected), as_bytes(actual)
    if checker in ("call", "assert"):
        return _check_returned(checker, expected, actual_bytes)
    rule = token_rule(checker)
    if expected_bytes == actual_bytes:
        return True, ""
    if rule.any_case:
        expected_bytes, actual_bytes = expected_bytes.lower(), actual_bytes.lower()
    expected_tokens = expected_bytes.split()
    # maxsplit: never build more tokens than needed
    actual_tokens = actual_bytes.split(None, len(expected_tokens))
    if expected_tokens == actual_tokens:
        return True, ""
    if len(actual_tokens) < len(expected_tokens):
        return False, f"{len(actual_tokens)} tokens where {len(expected_tokens)} are expected"
    if len(actual_tokens) > len(expected_tokens):
        return False, f"more than the {len(expected_tokens)} expected tokens"
    for number, (want, got) in enumerate(zip(expected_tokens, actual_tokens, strict=True), 1):
        if want != got and not _same_number(want, got, rule):
            return False, f"token {number}: expected {_short(want)}, found {_short(got)}"
    return True, ""


@dataclass(frozen=True)
class TokenRule:
    """How two tokens may differ."""

    numbers: str  # tokens, text, floats or rounded
    any_case: bool = False
    absolute: float = ABSOLUTE_TOLERANCE
    relative: float = RELATIVE_TOLERANCE
    stated: bool = False  # the problem states the tolerance


@functools.lru_cache(maxsize=256)
def token_rule(checker: str) -> TokenRule:
    """Parse a checker of tokens. Raises ValueError for another one."""
    name, *options = checker.split(" ")
    values = dict(option.split("=", 1) for option in options if "=" in option)
    try:
        if name not in TOKEN_CHECKERS or len(values) < len(options):
            raise ValueError
        any_case = name == "case_insensitive" or "case" in values
        if values.pop("case", "any") != "any":
            raise ValueError
        rule = TokenRule("tokens" if name == "case_insensitive" else name, any_case)
        if not values:
            return rule
        absolute, relative = float(values.pop("absolute")), float(values.pop("relative"))
        if name != "floats" or values or not (0 <= absolute < 1 and 0 <= relative < 1):
            raise ValueError
    except (KeyError, ValueError):
        raise ValueError(f"checker {checker!r} cannot compare outputs") from None
    return TokenRule(name, any_case, absolute, relative, stated=True)


def is_checker(checker: str) -> bool:
    """Return whether there is such a checker, with options in their ranges."""
    try:
        return checker in ("call", "assert") or bool(token_rule(checker))
    except ValueError:
        return False


def comparable(checker: str, expected: str) -> bool:
    """Return whether outputs can be compared with `expected`.

    Under `call` it must be JSON without a NaN, which equals nothing; under `assert` a condition.
    """
    try:
        if checker == "call":
            return not holds_nan(parse(as_bytes(expected)))
        if checker == "assert":
            parse_condition(expected)
    except (ValueError, RecursionError):
        return False
    return True


def as_bytes(text: bytes | str) -> bytes:
    """Return a text, which may hold half of a character, as bytes."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _short(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _same_number(expected: bytes, actual: bytes, rule: TokenRule) -> bool:
    if rule.numbers == "text":
        return False
    if INTEGER.fullmatch(expected) and INTEGER.fullmatch(actual):
        return _normal_integer(expected) == _normal_integer(actual)
    if rule.numbers == "tokens" or not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(actual)):
        return False
    if rule.numbers == "rounded":
        return _normal_decimal(expected) == _normal_decimal(actual)
    want, got = float(expected), float(actual)
    if INTEGER.fullmatch(expected) and not rule.stated and not abs(want - got) < 0.5:
        return False
    return _close(want, got, rule.absolute, rule.relative)


def _normal_integer(token: bytes) -> bytes:
    """Return sign and digits without leading zeros, in linear time at any size."""
    digits = token.lstrip(b"+-").lstrip(b"0")
    return b"-" + digits if token.startswith(b"-") and digits else digits


def _normal_decimal(token: bytes) -> bytes:
    """Return a number without leading zeros and without zeros at the end of its decimals."""
    whole, _, decimals = token.partition(b".")
    digits = b"%s.%s" % (whole.lstrip(b"+-").lstrip(b"0"), decimals.rstrip(b"0"))
    return b"-" + digits if token.startswith(b"-") and digits != b"." else digits


def _close(
    expected: float,
    actual: float,
    absolute: float = ABSOLUTE_TOLERANCE,
    relative: float = RELATIVE_TOLERANCE,
) -> bool:
    """Compare within the tolerance. Of zero, where none is relative, the error is absolute."""
    if not (math.isfinite(expected) and math.isfinite(actual)):
        return False
    allowed = max(absolute, relative * abs(expected))
    return abs(expected - actual) <= (allowed if allowed or expected else relative)


def _check_returned(checker: str, expected: str, actual: bytes) -> tuple[bool, str]:
    """Check the JSON value, or the condition of an assert, that a returned value has to meet."""
    is_call = checker == "call"
    condition = None if is_call else parse_condition(expected)
    try:
        want = parse(as_bytes(expected)) if is_call else None
    except (ValueError, RecursionError):
        raise ValueError(f"an expected value is not JSON: {_short(as_bytes(expected))}") from None
    # No JSON value has two spellings that differ this much in length.
    if len(actual) > _LONGER_TIMES * len(as_bytes(expected)) + _LONGER_BYTES:
        # Only a truth value does without the value itself. All false values are short, and a long
        # array of numpy's has none.
        is_truth = condition is not None and condition.kind == "true"
        right = is_truth and not actual.startswith(b'{"": ["array"')
        return right, "" if right else "a far longer value than expected"
    try:
        got = parse(actual)
        if condition.holds(got) if condition else json_equal(want, got):
            return True, ""
        found = f"returned {_short(shown(got).encode())}"
        wanted = _short(as_bytes(expected).strip() if is_call else expected.encode())
        return False, f"expected {wanted}, {found}" if is_call else f"not {wanted}: {found}"
    except (ValueError, RecursionError):
        return False, f"not a {'JSON' if is_call else 'returned'} value: {_short(actual[:200])}"
