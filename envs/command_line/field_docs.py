"""Describe a dataclass's fields for `--help`: key, allowed values, default and sentence.

The sentence is the comment beside a field in the source, so no text stands twice. Without one it
is the comment lines right above the field. Where a field has both, the lines above head a group.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import textwrap
import tokenize
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dataclasses import Field

REQUIRED = "..."  # in place of a default
WORDS = {int: "integer", float: "number", str: "text", bool: "true|false", Path: "path"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True)
class FieldDoc:
    """One field, in words."""

    key: str  # as on the command line
    values: str  # a type with its bounds, or the choices: "a|b"
    default: str
    sentence: str  # "" if the source has no comment
    section: type | None = None  # the dataclass of a field that has keys of its own


@functools.cache
def field_docs(schema: type) -> tuple[FieldDoc, ...]:
    """Describe each field of a dataclass, those that it inherits included."""
    hints = typing.get_type_hints(schema, include_extras=True)
    keys, sentences = key_names(schema), field_comments(schema)
    return tuple(
        FieldDoc(
            keys[field.name],
            value_words(hints[field.name]),
            _default(field),
            sentences.get(field.name, ""),
            _section(hints[field.name]),
        )
        for field in fields(schema)
    )


def field_comments(schema: type) -> dict[str, str]:
    """Return field name → its comment, from a dataclass's source and its bases'."""
    comments: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        if is_dataclass(base) and base.__annotations__:
            comments |= {name: text for name, text in _own_comments(base).items() if text}
    return comments


@functools.cache
def _own_comments(schema: type) -> dict[str, str]:
    """The comments of the fields that a class states itself; {} where its source is not there."""
    try:
        source = textwrap.dedent(inspect.getsource(schema))
    except (OSError, TypeError):
        return {}
    above, beside = _comment_lines(source)
    (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    found = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.end_lineno or node.lineno
            inside = [beside[line] for line in range(node.lineno, last + 1) if line in beside]
            found[node.target.id] = " ".join(inside or _block_above(above, node.lineno))
    return found


def _comment_lines(source: str) -> tuple[dict[int, str], dict[int, str]]:
    """Return line → comment: of lines that hold nothing else, and of lines of code."""
    alone, beside, lines = dict[int, str](), dict[int, str](), source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            number = token.start[0]
            text = token.string.lstrip("#").strip()
            begins = lines[number - 1].lstrip().startswith("#")
            (alone if begins else beside)[number] = text
    return alone, beside


def _block_above(alone: dict[int, str], line: int) -> list[str]:
    block: list[str] = []
    while (line := line - 1) in alone:
        block.insert(0, alone[line])
    return block


def key_names(schema: type) -> dict[str, str]:
    """Return field name → configuration key of a dataclass.

    They differ where the key is a word of Python, such as `from`, and the field has it as alias.
    """
    names = {}
    for name, hint in typing.get_type_hints(schema, include_extras=True).items():
        aliases = [getattr(item, "alias", None) for item in getattr(hint, "__metadata__", ())]
        names[name] = next(filter(None, aliases), name)
    return names


def value_words(hint: Any) -> str:
    """Say in words which values an annotation allows."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return f"{value_words(arguments[0])} {', '.join(_bounds(arguments[1:]))}".strip()
    if origin is Literal:
        return "|".join(map(plain, arguments))
    if origin in (typing.Union, types.UnionType):
        return "|".join("null" if a is type(None) else value_words(a) for a in arguments)
    if origin is list:
        return f"list of {value_words(arguments[0])}"
    if origin is dict:
        return "{key: value}"
    return WORDS.get(hint, "keys of its own" if is_dataclass(hint) else "value")


def _bounds(metadata: tuple[Any, ...]) -> Iterator[str]:
    for item in metadata:
        for part in (item, *getattr(item, "metadata", ())):
            for name, sign in BOUNDS.items():
                bound = getattr(part, name, None)
                if bound is not None:
                    yield f"{sign} {bound:g}"


def _section(hint: Any) -> type | None:
    """The dataclass that a field holds, if any."""
    options = (hint, *typing.get_args(hint))
    return next((o for o in options if isinstance(o, type) and is_dataclass(o)), None)


def _default(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return plain(field.default_factory())
    return REQUIRED if field.default is MISSING else plain(field.default)


def plain(value: Any) -> str:
    """Write a value as on the command line."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return f"[{','.join(map(plain, value))}]"
    if value is None or isinstance(value, bool | dict):
        return json.dumps(value)
    return str(value)
