"""Checkers: compare a program's output with the expected output.

Both are split at whitespace, so line structure does not matter; the number of tokens must match.
The problem's `checker` decides how two tokens may differ: a name, and options as in
`floats absolute=1e-09 relative=0.0` or `text case=any`. Numbers are converted to doubles only if
one of them is a float literal: integers of any size are compared exactly.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from envs.judge import returned_values
from envs.judge.returned_values import (
    ABSOLUTE_TOLERANCE,
    RELATIVE_TOLERANCE,
    parse_condition,
    shown,
)

TOKEN_CHECKERS = ("tokens", "text", "floats", "rounded", "case_insensitive")
_LONGER_TIMES, _LONGER_BYTES = 64, 4096  # a longer returned value cannot be the expected one

# Possessive quantifiers prevent backtracking: a hostile output may hold millions of digits.
_INTEGER = re.compile(rb"[+-]?+[0-9]++")
_PADDED_INTEGER = re.compile(rb"[+-]?+0[0-9]++")
_NUMBER = re.compile(rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")
_FLOAT_WITH_POINT = re.compile(rb"[+-]?+(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")


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
    `call`: a value in JSON, and what a function returned (`returned_values.json_equal`).
    `assert`: the condition of a data set's assert, and what a function returned (`Condition`).

    Raises ValueError for any other checker, including `needs_checker` (no comparison can decide a
    problem that accepts any valid answer), and where `comparable` is False.
    """
    expected_bytes, actual_bytes = _as_bytes(expected), _as_bytes(actual)
    if checker == "call":
        return _check_call(expected_bytes, actual_bytes)
    if checker == "assert":
        return _check_assertion(expected, actual_bytes)
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
            return not returned_values.holds_nan(returned_values.parse(_as_bytes(expected)))
        if checker == "assert":
            parse_condition(expected)
    except (ValueError, RecursionError):
        return False
    return True


def infer_checker(outputs: Iterable[str]) -> str:
    """Return `floats` if any expected token is a float literal with a point, else `tokens`.

    An exponent alone (`1e5`) does not count: it is more often a name or a hexadecimal string.
    """
    for output in outputs:
        if "." in output and any(map(_FLOAT_WITH_POINT.fullmatch, _as_bytes(output).split())):
            return "floats"
    return "tokens"


def has_integers(outputs: Iterable[str], *, padded: bool = False) -> bool:
    """Return whether any expected token is an integer; `padded`: one with a leading zero."""
    pattern = _PADDED_INTEGER if padded else _INTEGER
    return any(any(map(pattern.fullmatch, _as_bytes(output).split())) for output in outputs)


def _as_bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _short(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _same_number(expected: bytes, actual: bytes, rule: TokenRule) -> bool:
    if rule.numbers == "text":
        return False
    if _INTEGER.fullmatch(expected) and _INTEGER.fullmatch(actual):
        return _normal_integer(expected) == _normal_integer(actual)
    if rule.numbers == "tokens" or not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(actual)):
        return False
    if rule.numbers == "rounded":
        return _normal_decimal(expected) == _normal_decimal(actual)
    want, got = float(expected), float(actual)
    if _INTEGER.fullmatch(expected) and not rule.stated and not abs(want - got) < 0.5:
        return False
    return _close(want, got, rule)


def _normal_integer(token: bytes) -> bytes:
    """Return sign and digits without leading zeros, in linear time at any size."""
    digits = token.lstrip(b"+-").lstrip(b"0")
    return b"-" + digits if token.startswith(b"-") and digits else digits


def _normal_decimal(token: bytes) -> bytes:
    """Return a number without leading zeros and without zeros at the end of its decimals."""
    whole, _, decimals = token.partition(b".")
    digits = b"%s.%s" % (whole.lstrip(b"+-").lstrip(b"0"), decimals.rstrip(b"0"))
    return b"-" + digits if token.startswith(b"-") and digits != b"." else digits


def _close(expected: float, actual: float, rule: TokenRule) -> bool:
    """Compare within the tolerance. Of zero, where none is relative, the error is absolute."""
    if not (math.isfinite(expected) and math.isfinite(actual)):
        return False
    allowed = max(rule.absolute, rule.relative * abs(expected))
    return abs(expected - actual) <= (allowed if allowed or expected else rule.relative)


def _check_call(expected: bytes, actual: bytes) -> tuple[bool, str]:
    # No JSON value has two spellings that differ this much in length.
    if len(actual) > _LONGER_TIMES * len(expected) + _LONGER_BYTES:
        return False, "a far longer value than expected"
    try:
        want = returned_values.parse(expected)
    except (ValueError, RecursionError):
        raise ValueError(f"an expected value is not JSON: {_short(expected[:200])}") from None
    try:
        got = returned_values.parse(actual)
        if returned_values.json_equal(want, got):
            return True, ""
        return False, f"expected {_short(expected.strip())}, returned {_short(shown(got).encode())}"
    except (ValueError, RecursionError):
        return False, f"not a JSON value: {_short(actual[:200])}"


def _check_assertion(expected: str, actual: bytes) -> tuple[bool, str]:
    """Check the condition that an assert puts on the returned value."""
    condition = parse_condition(expected)
    if len(actual) > _LONGER_TIMES * len(expected) + _LONGER_BYTES:
        # Only a truth value does without the value itself. All false values are short, and a long
        # array of numpy's has none.
        right = condition.kind == "true" and not actual.startswith(b'{"": ["array"')
        return right, "" if right else "a far longer value than expected"
    try:
        got = returned_values.parse(actual)
        if condition.holds(got):
            return True, ""
        return False, f"not {_short(expected.encode())}: returned {_short(shown(got).encode())}"
    except (ValueError, RecursionError):
        return False, f"not a returned value: {_short(actual[:200])}"
