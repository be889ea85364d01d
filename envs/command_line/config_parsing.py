"""Parse plain values into dataclasses; every error is one line with the key, value and cure.

Types, ranges (`PositiveInt`, `Annotated[float, Field(le=1)]`) and choices (`Literal`) are declared
only in the dataclass annotations. Pydantic checks values against them.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from envs.command_line.command_help import print_help, wants_help
from envs.command_line.field_docs import key_names

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

CURES = {  # pydantic's error type → the required value
    "int_type": "it takes a whole number (int)",
    "float_type": "it takes a number (float)",
    "string_type": "it takes a text (str)",
    "bool_type": "it is true or false",
    "int_parsing": "it takes a whole number (int)",
    "int_parsing_size": "it takes a whole number (int)",
    "float_parsing": "it takes a number (float)",
    "bool_parsing": "it is true or false",
    "dict_type": "it takes keys and their values",
    "list_type": "it takes a list, e.g. [1,2]",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than_equal": "it must be at most {le:g}",
    "less_than": "it must be below {lt:g}",
    "string_pattern_mismatch": "it must match {pattern}",
    "string_too_short": "it must not be empty",
    "too_short": "it takes at least {min_length}",
}


def parse_values(schema: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Build `schema` from YAML values. Raises ValueError with key, value and the cure.

    Types are strict, except that an int is accepted as a float. Floats must be finite. `prefix`:
    the key of the values, for messages.
    """
    _require_known(schema, values, prefix)
    try:
        return _adapter(schema).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(_message(error.errors()[0], prefix)) from error


@functools.cache
def _adapter(schema: type[Any]) -> TypeAdapter[Any]:
    """Build pydantic's checker once for each class: a sweep parses many configurations."""
    return TypeAdapter(schema)


def parse_arguments(
    schema: type[T], argv: Sequence[str], other_keys: Sequence[str] = (), doc: str | None = None
) -> T:
    """Build `schema` from key=value command-line arguments. Raises ValueError like `parse_values`.

    With --help, -h or help among them: print the help and end the process. `doc` is the help's
    text, by default the docstring of the module that defines `schema`. `other_keys`: keys that the
    command reads elsewhere, listed in messages.
    """
    if wants_help(argv):
        print_help(schema, doc)
        raise SystemExit(0)
    pairs = [argument.partition("=") for argument in argv]
    values = {key: value for key, _, value in pairs}
    keys = [field.name for field in fields(schema)]
    for (key, equals, value), argument in zip(pairs, argv, strict=True):
        if key in keys and equals and not value:
            raise ValueError(f"{argument}: it must not be empty")
        if key not in keys or not equals:
            given = list(argv)[: list(argv).index(argument)]
            raise ValueError(_no_argument(argument, given, schema, [*other_keys, *keys]))
    try:
        options = _adapter(schema).validate_strings(values)
    except ValidationError as error:
        raise ValueError(_message(error.errors()[0], "")) from error
    for key in keys:
        _require_finite(key, getattr(options, key))
    return options


def _no_argument(argument: str, before: Sequence[str], schema: type, keys: Sequence[str]) -> str:
    """The message on an argument that is no key=value of a command; `before`: those before it."""
    key, equals, _ = argument.partition("=")
    first = next(iter(typing.get_type_hints(schema).items()), ("", None))
    near = did_you_mean(key, keys)
    if equals or key in keys:
        hint = near if key not in keys else f"did you mean {key}=VALUE? "
    elif before and before[-1].partition("=")[0] == first[0]:  # the shell cut its value
        hint = f"quote a value with blanks, e.g. '{before[-1]} {argument}'; "
    elif first[1] in (str, Path):  # the value of the first key alone, such as a path
        hint = f"did you mean {first[0]}={argument}? "
    else:
        hint = near
    return f"{argument!r}: {hint}write key=value, with a key of {', '.join(keys)}"


def did_you_mean(key: str, known: Sequence[str]) -> str:
    """Suggest known keys for an unknown one, as the beginning of a message; "" if none is close.

    A key is close if the last name is equal, if it abbreviates the last name (`lr` for
    `learning_rate`), or by spelling.
    """
    leaf, names = key.rpartition(".")[2], {k: k.rpartition(".")[2] for k in known}
    near = [
        k
        for k, name in names.items()
        if leaf in (name, "".join(word[:1] for word in name.split("_")))
    ] or difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    return f"did you mean {' or '.join(map(repr, near[:2]))}? " if near else ""


def _require_known(schema: type, values: Mapping[str, Any], prefix: str) -> None:
    """Reject what pydantic accepts: unknown keys, and infinite or NaN floats."""
    hints = typing.get_type_hints(schema)
    keys = key_names(schema)
    if not isinstance(values, Mapping):
        listed = ", ".join(keys.values())
        raise ValueError(f"{prefix}={values!r}; it takes keys and their values, of: {listed}")
    hints |= {key: hints[name] for name, key in keys.items()}
    for key, value in values.items():
        path = f"{prefix}.{key}" if prefix else key
        if key not in hints:
            known = list(keys.values())
            suggestion, listed = did_you_mean(key, known), ", ".join(known)
            raise ValueError(f"unknown key {path!r}; {suggestion}keys here: {listed}")
        options = (hints[key], *typing.get_args(hints[key]))
        inner = next((option for option in options if is_dataclass(option)), None)
        if isinstance(value, Mapping) and isinstance(inner, type):
            _require_known(inner, value, path)
        if str in options and isinstance(value, float):
            raise ValueError(f"{path}={value}; it takes a text (str); {_quoted(path, value)}")
        _require_finite(path, value)


def _quoted(path: str, value: Any) -> str:
    """Show how a command line gives a text that Hydra would read as a number or a truth value."""
    text = str(value).lower() if isinstance(value, bool) else value
    return f"""as a text it is '{path}="{text}"'"""


def _require_finite(path: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path}={value}; it must be a finite number")


def _message(error: Mapping[str, Any], prefix: str) -> str:
    """Describe a pydantic error in one line."""
    names = [str(part) for part in error["loc"] if isinstance(part, str)]
    path = ".".join(filter(None, [prefix, *names]))
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing":
        return f"{path}=... is missing"
    if kind == "value_error" and isinstance(
        value, Mapping
    ):  # about several keys, which the message names
        return str(context["error"])
    if kind == "value_error":
        cure = str(context["error"])
    elif kind == "literal_error":
        cure = f"choose one of {context['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    elif kind == "greater_than":  # for int only PositiveInt, which means "above 0"
        whole = isinstance(context["gt"], int)
        cure = "it must be at least 1" if whole else f"it must be above {context['gt']:g}"
    elif kind == "dataclass_type":
        cure = f"it has keys of its own, {path}.KEY=VALUE"
    else:
        cure = CURES.get(kind, error["msg"]).format(**context)
        if kind == "string_type" and isinstance(value, bool | int | float):
            cure += f"; {_quoted(path, value)}"
    return f"{path}={value!r}; {cure}"
