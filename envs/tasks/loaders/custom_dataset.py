"""Your own data set (`task=own`): `task.fields` maps a problem's fields to your columns.

A nested column is written with dots, `tests.input`. A list on the path is searched item by item,
and a text on the path is parsed as JSON.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from envs.problem import CheckerProgram, Problem, Test
from envs.tasks.config import FieldsConfig
from envs.tasks.parsers import field_parsers
from envs.tasks.parsers.contest_fields import iso_date, rating
from envs.tasks.parsers.field_parsers import Row, SkipRow, named_by_row
from envs.tasks.parsers.special_judge import checker_for

_REQUIRED = ("statement", "inputs", "outputs")
_CHECKED_ROWS = 200  # a column must occur in one of the first rows


def problem(row: Row, name: str, fields: FieldsConfig) -> Problem:
    """Convert a row; the problem is call-based if it names a function. Raises SkipRow."""
    values = {key: _lookup(row, column) for key, column in asdict(fields).items() if column}
    for key in _REQUIRED:
        if values[key] is None:
            raise SkipRow(f"nothing in {getattr(fields, key)}")
    if not isinstance(values["statement"], str):
        raise SkipRow(f"{fields.statement} is not a text")
    starter_code = values.get("starter_code") or ""
    time_limit, memory = values.get("time_limit"), values.get("memory_limit")
    fn_name = field_parsers.function_name(values.get("fn_name"), starter_code)
    parse_tests = field_parsers.call_tests if fn_name else field_parsers.stdin_tests
    tests = parse_tests(_list(values["inputs"]), _list(values["outputs"]))
    samples: tuple[Test, ...] = ()
    if values.get("sample_inputs"):
        samples = parse_tests(_list(values["sample_inputs"]), _list(values.get("sample_outputs")))
        tests = tuple(dict.fromkeys(samples + tests))
    checker = _checker_program(values.get("checker"))
    if checker and fn_name:
        raise SkipRow("a checker program for a function")
    return Problem(
        name=named_by_row(name, values.get("name")),
        statement=values["statement"],
        samples=samples,
        tests=tests,
        checker="program" if checker else checker_for(values["statement"], tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        time_limit_s=_number(time_limit) or field_parsers.seconds(time_limit),
        memory_limit_mb=math.ceil(_number(memory) or 0) or field_parsers.megabytes(memory),
        difficulty=str(values.get("difficulty") or ""),
        tags=field_parsers.tag_list(values.get("tags")),
        source=values.get("source") or "",
        rating=rating(values.get("rating")),
        date=iso_date(values.get("date")),
        solutions=tuple(_list(values.get("solutions")) or ()),
        incorrect_solutions=tuple(_list(values.get("incorrect_solutions")) or ()),
        checker_program=checker,
    )


def _checker_program(source: Any) -> CheckerProgram | None:
    if not source:
        return None
    return CheckerProgram("testlib" if "testlib.h" in source else "python", source)


def check_fields(fields: FieldsConfig) -> None:
    """Raise ValueError if the column of a required field is not named."""
    for key in _REQUIRED:
        if getattr(fields, key) is None:
            raise ValueError(
                f"task.fields.{key} has no value: name the column that holds it, "
                f"task.fields.{key}=COLUMN"
            )
    if bool(fields.sample_inputs) != bool(fields.sample_outputs):
        raise ValueError("task.fields.sample_inputs and sample_outputs: give both or none")


def check_columns(fields: FieldsConfig, rows: Iterable[Row | None], label: str) -> None:
    """Raise ValueError for a column that none of the first rows has.

    A column that few problems need, such as a checker's, may stand in few rows.
    """
    checked = [row for row in itertools.islice(rows, _CHECKED_ROWS) if isinstance(row, Mapping)]
    columns = ", ".join(dict.fromkeys(column for row in checked for column in row))
    where = f"the first {_CHECKED_ROWS} rows of {label}" if len(checked) == _CHECKED_ROWS else label
    for key, column in asdict(fields).items():
        if column and checked and not any(_has_column(row, column) for row in checked):
            raise ValueError(
                f"task.fields.{key}={column}: no such column in {where}; it has {columns}"
            )


def _has_column(row: Row, column: str) -> bool:
    """Return whether a row has the column, even if empty; a nested column must have a value."""
    try:
        value = _lookup(row, column)
    except SkipRow:
        return False
    if isinstance(value, list):
        return column in row or any(item is not None for item in value)
    return column in row or value is not None


def _lookup(row: Row, column: str) -> Any:
    """Return the value of a column, with dots for nested ones; None if there is none."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = _member(value, name)
    return value


def _member(value: Any, name: str) -> Any:
    if isinstance(value, str):
        value = field_parsers.load_json(value, "a column with others inside")
    if isinstance(value, list):
        return [_member(item, name) for item in value]
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: Any) -> Any:
    """Return a list, given as such or as JSON; any other text becomes its only item."""
    if isinstance(value, str):
        try:
            items = field_parsers.load_json(value, "")
        except SkipRow:
            return [value]
        return items if isinstance(items, list) else [value]
    return value


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
