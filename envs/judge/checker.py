"""Checkers: compare a program's output with the expected output.

Both are split at whitespace, so line structure does not matter; the number of tokens must match.
The problem's `checker` decides how two tokens may differ. Numbers are converted to doubles only if
one of them is a float literal: integers of any size are compared exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from envs.judge import returned_values
from envs.judge.assertion import parse_condition
from envs.judge.returned_values import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE, shown

_LONGER_TIMES, _LONGER_BYTES = 64, 4096  # a longer returned value cannot be the expected one

# Possessive quantifiers prevent backtracking: a hostile output may hold millions of digits.
_INTEGER = re.compile(rb"[+-]?+[0-9]++")
_NUMBER = re.compile(rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")
_FLOAT_WITH_POINT = re.compile(rb"[+-]?+(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")


def check(checker: str, expected: str, actual: bytes | str) -> tuple[bool, str]:
    """Return (whether `actual` is accepted, the difference if not).

    `tokens`: equal text, or two integers of equal value (007 is 7, at any size).
    `floats`: like `tokens`; if either token is a float literal and both are numbers, an absolute or
    relative error up to 1e-6 is accepted too. Where an integer literal is expected, the error must
    also be below 1/2. So 1.0 and 0.9999999 match 1, and 123456700.0 does not match 123456789.
    Beyond 2**53, where doubles cannot represent all integers, only the nearest double matches.
    `case_insensitive`: like `tokens`, ignoring case.
    `call`: a value in JSON, and what a function returned (`returned_values.json_equal`).
    `assert`: the condition of a data set's assert, and what a function returned (`assertion`).

    Raises ValueError for any other checker, including `needs_checker` (no comparison can decide a
    problem that accepts any valid answer), and where `comparable` is False.
    """
    expected_bytes, actual_bytes = _as_bytes(expected), _as_bytes(actual)
    if checker == "call":
        return _check_call(expected_bytes, actual_bytes)
    if checker == "assert":
        return _check_assertion(expected, actual_bytes)
    if checker not in ("tokens", "floats", "case_insensitive"):
        raise ValueError(f"checker {checker!r} cannot compare outputs")
    if expected_bytes == actual_bytes:
        return True, ""
    if checker == "case_insensitive":
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
        if want != got and not _same_number(want, got, floats=checker == "floats"):
            return False, f"token {number}: expected {_short(want)}, found {_short(got)}"
    return True, ""


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


def _as_bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _short(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _same_number(expected: bytes, actual: bytes, *, floats: bool) -> bool:
    if _INTEGER.fullmatch(expected) and _INTEGER.fullmatch(actual):
        return _normal_integer(expected) == _normal_integer(actual)
    if not floats or not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(actual)):
        return False
    want, got = float(expected), float(actual)
    if _INTEGER.fullmatch(expected) and not abs(want - got) < 0.5:
        return False
    return _close(want, got)


def _normal_integer(token: bytes) -> bytes:
    """Return sign and digits without leading zeros, in linear time at any size."""
    digits = token.lstrip(b"+-").lstrip(b"0")
    return b"-" + digits if token.startswith(b"-") and digits else digits


def _close(expected: float, actual: float) -> bool:
    if not (math.isfinite(expected) and math.isfinite(actual)):
        return False
    return abs(expected - actual) <= max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * abs(expected))


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
