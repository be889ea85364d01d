"""Values that called functions returned, as the sandbox sends them, compared with expected ones.

`envs/sandbox/inside/values.py` describes the form. A hostile program can send anything, so what it
sent is only compared: no set or dictionary is built of its items, since chosen integers would make
one of them take quadratic time, and nothing in it is run or given a method.

`python_equal` compares as Python's `==` does. `json_equal` is for data sets that store results as
JSON (`fn_name` rows of TACO and APPS): a tuple counts as a list, as their own graders have it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from fractions import Fraction
from typing import Any

ABSOLUTE_TOLERANCE = RELATIVE_TOLERANCE = 1e-6

Number = bool | int | float | complex | Fraction

_MAX_RATIO_CHARS = 10_000  # reducing a fraction takes quadratic time
_MAX_SHOWN_DEPTH = 3
_MAX_SHOWN_BYTES = 20_000  # of a result that is parsed to be shown
_PLAIN_DIGITS = 4000  # more than Python converts in reasonable time


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
