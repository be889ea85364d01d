"""Whether an output is the expected one.

Both are split into whitespace tokens, so line structure does not matter, and the number of tokens
must match. What two tokens may differ in is the problem's `checker`. Numbers are never forced
through a double unless one of them is a float literal: integers of any size stay exact.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

ABSOLUTE_TOLERANCE = 1e-6
RELATIVE_TOLERANCE = 1e-6

# Possessive, so that none goes back over its digits: a hostile output holds millions of them.
_INTEGER = re.compile(rb"[+-]?+[0-9]++")
_NUMBER = re.compile(rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")
_FLOAT_WITH_POINT = re.compile(rb"[+-]?+(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")


def check(checker: str, expected: str, actual: bytes | str) -> tuple[bool, str]:
    """(does `actual` answer as `expected` does, the reason if it does not).

    `tokens`: equal text, or two integers of equal value (007 is 7, at any size).
    `floats`: also, if either token is a float literal and both are numbers, within 1e-6 absolutely
    or relative to the expected one; where an integer literal is expected, the answer must be nearer
    to it than 1/2 too. So 1.0 and 0.9999999 are 1, and 123456700.0 is not 123456789; beyond 2**53,
    where doubles no longer tell integers apart, only the double nearest to the integer is it.
    `case_insensitive`: as `tokens`, letters in either case.
    `call`: both are JSON; numbers compare by value, within 1e-6 where a float is expected.
    Raises ValueError for any other checker, `needs_checker` among them: no comparison can decide
    a problem that accepts any valid answer; and where `comparable` is False.
    """
    want, got = _as_bytes(expected), _as_bytes(actual)
    if checker == "call":
        return _check_call(want, got)
    if checker not in ("tokens", "floats", "case_insensitive"):
        raise ValueError(f"checker {checker!r} cannot compare outputs")
    if want == got:
        return True, ""
    if checker == "case_insensitive":
        want, got = want.lower(), got.lower()
    wanted = want.split()
    found = got.split(None, len(wanted))  # no more tokens than needed are ever built
    if wanted == found:
        return True, ""
    if len(found) < len(wanted):
        return False, f"{len(found)} tokens where {len(wanted)} are expected"
    if len(found) > len(wanted):
        return False, f"more than the {len(wanted)} expected tokens"
    for at, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if one != other and not _same_number(one, other, floats=checker == "floats"):
            return False, f"token {at + 1}: expected {_short(one)}, found {_short(other)}"
    return True, ""


def comparable(checker: str, expected: str) -> bool:
    """Whether outputs can be compared with `expected`: under `call` it must be JSON."""
    if checker != "call":
        return True
    try:
        _load_json(_as_bytes(expected))
    except (ValueError, RecursionError):
        return False
    return True


def infer_checker(outputs: Iterable[str]) -> str:
    """`floats` if any token of the expected outputs is a float literal with a point, else `tokens`.

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
    """Sign and digits without leading zeros: equal for equal values, in linear time at any size."""
    digits = token.lstrip(b"+-").lstrip(b"0")
    return b"-" + digits if token.startswith(b"-") and digits else digits


def _close(expected: float, actual: float) -> bool:
    if not (math.isfinite(expected) and math.isfinite(actual)):
        return False
    return abs(expected - actual) <= max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * abs(expected))


def _check_call(expected: bytes, actual: bytes) -> tuple[bool, str]:
    if expected.strip() == actual.strip():
        return True, ""
    # A JSON value has no form this much longer than another of the same value.
    if len(actual) > 64 * len(expected) + 4096:
        return False, "a far longer value than expected"
    try:
        want = _load_json(expected)
    except (ValueError, RecursionError):
        raise ValueError(f"an expected value is not JSON: {_short(expected[:200])}") from None
    try:
        same = _same_value(want, _load_json(actual))
    except (ValueError, RecursionError):
        return False, f"not a JSON value: {_short(actual[:200])}"
    if same:
        return True, ""
    return False, f"expected {_short(expected.strip())}, returned {_short(actual.strip())}"


def _load_json(text: bytes) -> Any:
    return json.loads(text.decode("utf-8", "surrogatepass"), parse_int=_parse_int)


def _parse_int(digits: str) -> int | tuple[str, str]:
    """An int, or, beyond what Python converts in reasonable time, its digits marked as such."""
    return int(digits) if len(digits) <= 4000 else ("integer", digits)


def _same_value(expected: Any, actual: Any) -> bool:
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_same_value, expected, actual))
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(
            _same_value(value, actual[key]) for key, value in expected.items()
        )
    if isinstance(expected, float) and isinstance(actual, int | float):
        try:
            return expected == actual or _close(expected, float(actual))
        except OverflowError:
            return False
    return expected == actual
