"""Columns of your own rows (`task.fields`): looked up, checked, and hints on what they may hold."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from envs.command_line import did_you_mean
from envs.tasks.config import FieldsConfig
from envs.tasks.parsers import field_parsers
from envs.tasks.parsers.field_parsers import Row, SkipRow

REQUIRED = ("statement", "inputs", "outputs")
_CHECKED_ROWS = 200  # a column must occur in one of the first rows
_MAX_INPUT_CHARS = 60  # of an input that a hint shows


# Values of a row.


def lookup(row: Row, column: str) -> Any:
    """Return the value of a column, with dots for nested ones; None if there is none."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = _member(value, name)
    return value


def _member(value: Any, name: str) -> Any:
    value = _opened(value)
    if isinstance(value, list):
        return [_member(item, name) for item in value]
    return value.get(name) if isinstance(value, Mapping) else None


def _opened(value: Any) -> Any:
    """Return a value with others inside; a text is JSON. Raises SkipRow if it is not."""
    if isinstance(value, str):
        return field_parsers.load_json(value, "a column with others inside")
    return value


def missing_case(row: Row, column: str) -> int | None:
    """Return the number, from 1, of the first object of a list that lacks the nested column."""
    if column in row:
        return None
    value: Any = row
    for name in column.split("."):
        value = _opened(value)
        if isinstance(value, list):
            lacking = [not isinstance(item, Mapping) or name not in item for item in value]
            return lacking.index(True) + 1 if any(lacking) else None
        value = _member(value, name)
    return None


def as_list(value: Any) -> Any:
    """Return a list, given as such or as JSON; any other text becomes its only item."""
    if isinstance(value, str):
        try:
            items = field_parsers.load_json(value, "")
        except SkipRow:
            return [value]
        return items if isinstance(items, list) else [value]
    return value


# Checks before rows are converted.


def check_fields(fields: FieldsConfig) -> None:
    """Raise ValueError if the column of a required field is not named."""
    for key in REQUIRED:
        if getattr(fields, key) is None:
            raise ValueError(
                f"task.fields.{key} has no value: name the column that holds it, "
                f"task.fields.{key}=COLUMN"
            )
    if bool(fields.sample_inputs) != bool(fields.sample_outputs):
        raise ValueError("task.fields.sample_inputs and sample_outputs: give both or none")


def check_columns(
    fields: FieldsConfig,
    rows: Iterable[Row | None],
    label: str,
    others: Iterable[Iterable[Row | None]] = (),
) -> None:
    """Raise ValueError for a column that none of the first rows of a file has.

    A column that few problems need, such as a checker's, may stand in few rows, and one that is
    not required may stand in one of the data set's other files alone: `others` are their rows.
    """
    checked = _first_rows(rows)
    where = f"the first {_CHECKED_ROWS} rows of {label}" if len(checked) == _CHECKED_ROWS else label
    missing = _missing_columns(asdict(fields), checked) if checked else {}
    if not missing.keys() & set(REQUIRED):
        for other in others:
            # without any left, no other file is opened
            missing = _missing_columns(missing, _first_rows(other)) if missing else {}
    for key, column in missing.items():
        raise ValueError(
            f"task.fields.{key}={column}: no such column in {where}; "
            f"{_columns_instead(checked, column)}"
        )


def _first_rows(rows: Iterable[Row | None]) -> list[Row]:
    return [row for row in itertools.islice(rows, _CHECKED_ROWS) if isinstance(row, Mapping)]


def _missing_columns(columns: Mapping[str, str | None], rows: Sequence[Row]) -> dict[str, str]:
    """Return the columns, by their keys, that no row has."""
    return {
        key: column
        for key, column in columns.items()
        if column and not any(_has_column(row, column) for row in rows)
    }


def _has_column(row: Row, column: str) -> bool:
    """Return whether a row has the column, even if empty; a nested column must have a value."""
    try:
        value = lookup(row, column)
    except SkipRow:
        return False
    if isinstance(value, list):
        return column in row or any(item is not None for item in value)
    return column in row or value is not None


def _columns_instead(rows: Iterable[Row], column: str) -> str:
    """Name the columns on the level at which `column` is not found, and the nearest of them."""
    values: list[Any] = list(rows)
    parts, inside = column.split("."), ""
    for part in parts:
        names = list(dict.fromkeys(name for value in values for name in _names_inside(value)))
        if part not in names:
            break
        values = [item for value in values for item in _items(value, part)]
        inside += f"{part}."
    if not names:
        return f"{inside.removesuffix('.')} has no columns inside"
    full = [f"{inside}{name}" for name in names]
    near = did_you_mean(inside + part, full) if part not in names else ""
    has = f"{inside.removesuffix('.') or 'it'} has {', '.join(names)}"
    return has + f"; {near.strip()}" * bool(near)


def _names_inside(value: Any) -> list[str]:
    return list(dict.fromkeys(str(name) for inner in _objects(value) for name in inner))


def _items(value: Any, name: str) -> list[Any]:
    return [inner[name] for inner in _objects(value) if name in inner]


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects in a value: itself, those of a list, or of JSON text; [] if none."""
    with suppress(SkipRow):
        value = _opened(value)
    if isinstance(value, list):
        return [inner for item in value for inner in _objects(item)]
    return [value] if isinstance(value, Mapping) else []


# Hints.


def function_hint(fields: FieldsConfig, rows: Iterable[Row | None]) -> str | None:
    """Say that tests look like a function's arguments while they are read as lines of stdin.

    A list of lines is a legal input, so this is no error. The signs are an input that is a list
    with numbers or lists in it, or a column with the name of a function that the row's texts
    define.
    """
    if fields.fn_name or fields.starter_code:
        return None
    shown = None
    for row in rows:
        if not isinstance(row, Mapping):
            continue
        with suppress(SkipRow):
            inputs = as_list(lookup(row, fields.inputs or ""))
            if not isinstance(inputs, list) or not inputs:
                continue
            if found := _function_column(row, fields):
                column, name = found
                return (
                    f"inputs such as {_short(inputs[0])} are read as lines of stdin, but {column} "
                    f"of the same row names a function, {name!r}; if they are its arguments, add "
                    f"task.fields.fn_name={column}"
                )
            lists = [item for item in inputs if isinstance(item, list)]
            odd = [item for item in lists if not all(isinstance(part, str) for part in item)]
            shown = shown or (_short(odd[0]) if odd else None)
    return shown and (
        f"inputs such as {shown} are read as lines of stdin; if they are a function's arguments, "
        "name the column that has the function's name, task.fields.fn_name=COLUMN"
    )


def _function_column(row: Row, fields: FieldsConfig) -> tuple[str, str] | None:
    """Return an unmapped column and its value, NAME, if a text of the row has `def NAME(`."""
    mapped = set(asdict(fields).values())
    defined = set(re.findall(r"\bdef\s+(\w+)\s*\(", "\n".join(_texts(row))))
    for column, value in _named_texts(row):
        if column not in mapped and value in defined:
            return column, value
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _named_texts(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (column, text) of the texts of a row, with dots for nested columns."""
    for name, value in row.items():
        if isinstance(value, str):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping):
            yield from _named_texts(value, f"{prefix}{name}.")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MAX_INPUT_CHARS else f"{text[:_MAX_INPUT_CHARS]}…"
