"""Plain values into a dataclass whose annotations say what is allowed; anything else is one line.

Types, ranges (`PositiveInt`, `Annotated[float, Field(le=1)]`) and choices (`Literal`) stand beside
each option and nowhere else; pydantic holds values against them.
"""

from __future__ import annotations

import difflib
import json
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

WORDS = {  # pydantic's kind of error → what would be right
    "int_type": "it takes a whole number (int)",
    "float_type": "it takes a number (float)",
    "string_type": "it takes a text (str)",
    "bool_type": "it is true or false",
    "int_parsing": "it takes a whole number (int)",
    "int_parsing_size": "it takes a whole number (int)",
    "float_parsing": "it takes a number (float)",
    "bool_parsing": "it is true or false",
    "list_type": "it takes a list, e.g. [1,2]",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than_equal": "it must be at most {le:g}",
    "less_than": "it must be below {lt:g}",
    "string_pattern_mismatch": "it must match {pattern}",
    "string_too_short": "it must not be empty",
}


def parse_values(schema: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """A `schema` of values as YAML knows them. Raises ValueError: key, value, what would be right.

    Types are exact, but a whole number is a float too. No float is infinite or NaN.
    """
    _require_known(schema, values, prefix)
    try:
        return TypeAdapter(schema).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(_told(error.errors()[0], prefix)) from error


def parse_arguments(schema: type[T], given: Sequence[str], also: Sequence[str] = ()) -> T:
    """A `schema` of the key=value arguments of a command line. Raises ValueError as `typed`.

    `also`: keys that the command knows besides, for the message.
    """
    pairs = [argument.partition("=") for argument in given]
    values = {key: value for key, _, value in pairs}
    known = [field.name for field in fields(schema)]
    for (key, equals, value), argument in zip(pairs, given, strict=True):
        if key in known and equals and not value:
            raise ValueError(f"{argument}: it must not be empty")
        if key not in known or not equals:
            raise ValueError(
                f"{argument!r}: write key=value, with a key of {', '.join([*also, *known])}"
            )
    try:
        read = TypeAdapter(schema).validate_strings(values)
    except ValidationError as error:
        raise ValueError(_told(error.errors()[0], "")) from error
    for key in known:
        _require_finite(key, getattr(read, key))
    return read


def did_you_mean(key: str, known: Sequence[str]) -> str:
    """The known key that is spelt most like this one, or whose last name it ends or abbreviates:
    `lr` is no misspelling of `learning_rate`, but means it."""
    leaf, names = key.rpartition(".")[2], {k: k.rpartition(".")[2] for k in known}
    near = [
        k
        for k, name in names.items()
        if leaf in (name, "".join(word[:1] for word in name.split("_")))
    ] or difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    return f"did you mean {' or '.join(map(repr, near[:2]))}? " if near else ""


def _require_known(schema: type, values: Mapping[str, Any], prefix: str) -> None:
    """What pydantic lets pass: keys that no field has, and infinities."""
    hints = typing.get_type_hints(schema)
    for key, value in values.items():
        path = f"{prefix}.{key}" if prefix else key
        if key not in hints:
            near, listed = did_you_mean(key, list(hints)), ", ".join(hints)
            raise ValueError(f"unknown key {path!r}; {near}keys here: {listed}")
        inner = next(filter(is_dataclass, (hints[key], *typing.get_args(hints[key]))), None)
        if isinstance(value, Mapping) and inner:
            _require_known(inner, value, path)
        _require_finite(path, value)


def _require_finite(path: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path}={value}; it must be a finite number")


def _told(error: Mapping[str, Any], prefix: str) -> str:
    """The first error in our words."""
    names = [str(part) for part in error["loc"] if isinstance(part, str)]
    path, value, context = (
        ".".join(filter(None, [prefix, *names])),
        error["input"],
        error.get("ctx"),
    )
    kind = error["type"]
    if kind == "missing":
        return f"{path}=... is missing"
    if kind == "value_error" and isinstance(value, Mapping):  # several keys, which it names itself
        return str(context["error"])
    if kind == "value_error":
        right = str(context["error"])
    elif kind == "literal_error":
        right = f"it is one of {context['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    elif kind == "greater_than":  # of whole numbers only PositiveInt, which is "above 0"
        whole = isinstance(context["gt"], int)
        right = "it must be at least 1" if whole else f"it must be above {context['gt']:g}"
    elif kind == "dataclass_type":
        right = f"it has keys of its own, {path}.KEY=VALUE"
    else:
        right = WORDS.get(kind, error["msg"]).format(**context or {})
    return f"{path}={value!r}; {right}"
