"""A data set in a schema of one's own: `task.fields` says which column holds what.

A column inside another is written with dots, `tests.input`; where there is a list on the way, the
rest is looked up in each of its items. Text on the way is read as JSON.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from envs.problem import Problem, Test
from envs.tasks.config import FieldsConfig
from envs.tasks.loaders import field_parsers as read
from envs.tasks.loaders.field_parsers import Row, SkipRow, own_name
from envs.tasks.loaders.special_judge import checker_for

_NEEDED = ("statement", "inputs", "outputs")
_LOOKED_AT = 200  # rows in which a column must stand once


def problem(row: Row, name: str, fields: FieldsConfig) -> Problem:
    """A problem from a row, call-based where it names a function. Raises SkipRow."""
    held = {key: _at(row, column) for key, column in asdict(fields).items() if column}
    for key in _NEEDED:
        if held[key] is None:
            raise SkipRow(f"nothing in {getattr(fields, key)}")
    starter_code = held.get("starter_code") or ""
    time_limit, memory = held.get("time_limit"), held.get("memory_limit")  # seconds, MiB or text
    fn_name = read.function_name(held.get("fn_name"), starter_code)
    to_tests = read.call_tests if fn_name else read.stdin_tests
    tests = to_tests(_list(held["inputs"]), _list(held["outputs"]))
    samples: tuple[Test, ...] = ()
    if held.get("sample_inputs"):
        samples = to_tests(_list(held["sample_inputs"]), _list(held.get("sample_outputs")))
        tests = tuple(dict.fromkeys(samples + tests))
    return Problem(
        name=own_name(name, held.get("name")),
        statement=held["statement"],
        samples=samples,
        tests=tests,
        checker=checker_for(held["statement"], tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        time_limit_s=_number(time_limit) or read.seconds(time_limit),
        memory_limit_mb=math.ceil(_number(memory) or 0) or read.megabytes(memory),
        difficulty=str(held.get("difficulty") or ""),
        tags=read.tag_list(held.get("tags")),
        source=held.get("source") or "",
        solutions=tuple(_list(held.get("solutions")) or ()),
        incorrect_solutions=tuple(_list(held.get("incorrect_solutions")) or ()),
    )


def check_fields(fields: FieldsConfig) -> None:
    """Raises ValueError where a column that no problem can do without is not named."""
    for key in _NEEDED:
        if getattr(fields, key) is None:
            raise ValueError(
                f"task.fields.{key} has no value: name the column that holds it, "
                f"task.fields.{key}=COLUMN"
            )
    if bool(fields.sample_inputs) != bool(fields.sample_outputs):
        raise ValueError("task.fields.sample_inputs and sample_outputs: give both or none")


def check_columns(fields: FieldsConfig, rows: Iterable[Row | None], label: str) -> None:
    """Raises ValueError for a column that none of the first rows has."""
    looked_at = [row for row in itertools.islice(rows, _LOOKED_AT) if isinstance(row, Mapping)]
    there = dict.fromkeys(column for row in looked_at for column in row)
    for key, column in asdict(fields).items():
        if column and looked_at and not any(_there(row, column) for row in looked_at):
            raise ValueError(
                f"task.fields.{key}={column}: no such column in {label}; it has {', '.join(there)}"
            )


def _there(row: Row, column: str) -> bool:
    """Whether a row has the column, be it empty; one inside another must hold something."""
    try:
        held = _at(row, column)
    except SkipRow:
        return False
    inside = any(item is not None for item in held) if isinstance(held, list) else held is not None
    return column in row or inside


def _at(row: Row, column: str) -> Any:
    """What a row holds there; None where it holds nothing."""
    if column in row:
        return row[column]
    held: Any = row
    for step in column.split("."):
        held = _inside(held, step)
    return held


def _inside(held: Any, step: str) -> Any:
    if isinstance(held, str):
        held = read.load_json(held, "a column with others inside")
    if isinstance(held, list):
        return [_inside(item, step) for item in held]
    return held.get(step) if isinstance(held, Mapping) else None


def _list(value: Any) -> Any:
    """A list, or the JSON of one; any other text is the only item."""
    if isinstance(value, str):
        try:
            found = read.load_json(value, "")
        except SkipRow:
            return [value]
        return found if isinstance(found, list) else [value]
    return value


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
