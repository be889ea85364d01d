"""Your own data set (`task=own`): `task.fields` maps a problem's fields to your columns.

A nested column is written with dots, `tests.input`. A list on the path is searched item by item,
and a text on the path is parsed as JSON.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from envs.command_line import did_you_mean
from envs.problem import CheckerProgram, Problem, Test
from envs.tasks import parsers
from envs.tasks.checker_rules import checker_for
from envs.tasks.parsers import Row, SkipRow, named_by_row
from envs.tasks.task import FieldsConfig

REQUIRED = ("statement", "inputs", "outputs")
_ABSENT = object()  # in place of a nested column that a case lacks
_OF_TESTS, _OF_SAMPLES = ("inputs", "outputs"), ("sample_inputs", "sample_outputs")


def problem(row: Row, name: str, fields: FieldsConfig) -> Problem:
    """Convert a row; the problem is call-based if it names a function. Raises SkipRow."""
    values = {key: lookup(row, column) for key, column in asdict(fields).items() if column}
    for key in REQUIRED:
        if values[key] is None:
            raise SkipRow(f"nothing in {getattr(fields, key)}")
    if not isinstance(values["statement"], str):
        raise SkipRow(f"{fields.statement} is not a text")
    starter_code = values.get("starter_code") or ""
    fn_name = parsers.function_name(values.get("fn_name"), starter_code)
    if not _is_name(values.get("fn_name")):
        raise SkipRow(f"{fields.fn_name} is not the plain name of a function")
    _check_cases(row, fields, values, nulls=fn_name is not None)
    parse_tests = parsers.call_tests if fn_name else parsers.stdin_tests
    tests = parse_tests(_as_list(values["inputs"]), _as_list(values["outputs"]))
    samples: tuple[Test, ...] = ()
    if _some(values.get("sample_inputs")):
        samples = parse_tests(*(_as_list(values.get(key)) for key in _OF_SAMPLES))
        tests = tuple(dict.fromkeys(samples + tests))
    checker = None
    if source := values.get("checker"):
        checker = CheckerProgram("testlib" if "testlib.h" in source else "python", source)
    if checker and fn_name:
        raise SkipRow("a checker program for a function")
    time_limit, memory = values.get("time_limit"), values.get("memory_limit")
    return Problem(
        name=named_by_row(name, values.get("name")),
        statement=values["statement"],
        samples=samples,
        tests=tests,
        checker="program" if checker else checker_for(values["statement"], tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        time_limit_s=_number(time_limit) or parsers.seconds(time_limit),
        memory_limit_mb=math.ceil(_number(memory) or 0) or parsers.megabytes(memory),
        difficulty=str(values.get("difficulty") or ""),
        tags=parsers.tag_list(values.get("tags")),
        source=values.get("source") or "",
        rating=parsers.rating(values.get("rating")),
        date=parsers.iso_date(values.get("date")),
        solutions=tuple(_as_list(values.get("solutions")) or ()),
        incorrect_solutions=tuple(_as_list(values.get("incorrect_solutions")) or ()),
        checker_program=checker,
    )


def check_columns(fields: FieldsConfig, rows: Sequence[Row], where: str) -> None:
    """Raise ValueError for a field without its column, and for a column that no row has.

    `rows`: the first ones of the data set's files.
    """
    columns = asdict(fields)
    known = list(dict.fromkeys(name for row in rows for name in _column_names(row)))
    has = f"it has {', '.join(known) or 'no row that could be read'}"
    for key in REQUIRED:
        if columns[key] is None:
            raise ValueError(
                f"task.fields.{key} has no value: name the column of {where} that holds it, "
                f"task.fields.{key}=COLUMN; {has}"
            )
    if bool(fields.sample_inputs) != bool(fields.sample_outputs):
        raise ValueError("task.fields.sample_inputs and sample_outputs: give both or none")
    for key, column in columns.items():
        if rows and column and not any(_has_column(row, column) for row in rows):
            near = did_you_mean(column, known)
            raise ValueError(f"task.fields.{key}={column}: no such column in {where}; {near}{has}")


def lookup(row: Row, column: str, absent: Any = None) -> Any:
    """Return the value of a column, with dots for nested ones; `absent` if there is none.

    Raises SkipRow if a dot enters what is neither an object, a list of objects, nor JSON of these.
    """
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = _member(value, name, absent, f"{column}: where {name} is looked for")
    return value


def _member(value: Any, name: str, absent: Any, where: str) -> Any:
    if isinstance(value, str):
        value = parsers.load_json(value, where)
    if isinstance(value, list):
        return [_member(item, name, absent, where) for item in value]
    if isinstance(value, Mapping):
        return value.get(name, absent)
    if value is not None and value is not absent:
        raise SkipRow(f"{where} is no object")
    return absent


def _as_list(value: Any) -> Any:
    """Return a list, given as such or as JSON; any other text becomes its only item."""
    if isinstance(value, str):
        try:
            items = parsers.load_json(value, "")
        except SkipRow:
            return [value]
        return items if isinstance(items, list) else [value]
    return value


def _is_name(name: Any) -> bool:
    """Return whether this can name a function; a method of a class Solution is named by itself."""
    if isinstance(name, str) and (name := name.strip()):
        return name.isidentifier() and not keyword.iskeyword(name)
    return not name  # the program reads stdin


def _check_cases(row: Row, fields: FieldsConfig, values: Mapping[str, Any], nulls: bool) -> None:
    """Raise SkipRow for a test case without its input or output; `nulls`: null is a value."""
    no_sample = not any(map(_some, (values.get(key) for key in _OF_SAMPLES)))
    for key in (*_OF_TESTS, *(() if no_sample else _OF_SAMPLES)):
        if column := getattr(fields, key):
            cell = lookup(row, column, _ABSENT)
            cases = _as_list(cell)
            if isinstance(cell, str) and cell.lstrip().startswith("[") and cases == [cell]:
                raise SkipRow(f"{column} begins with [ and is not a list in JSON")
            faults = {"missing": _ABSENT} | ({} if nulls else {"null": None})
            for fault, value in faults.items():
                if isinstance(cases, list) and value in cases:
                    raise SkipRow(f"{column} is {fault} in case {cases.index(value) + 1}")


def _some(value: Any) -> bool:
    """Return whether a column, or some case of a nested one, has a value."""
    return any(item is not None for item in value) if isinstance(value, list) else bool(value)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _has_column(row: Row, column: str) -> bool:
    """Return whether a row has the column, even if empty; a nested column must have a value."""
    if column in row:
        return True
    with suppress(SkipRow):
        value = lookup(row, column)
        cases = value if isinstance(value, list) else [value]
        return any(case is not None for case in cases)
    return False


def _column_names(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the columns of a row, with dots for nested ones."""
    if isinstance(value, str):
        with suppress(SkipRow):
            value = parsers.load_json(value, "")
    items: Iterable[Any] = value if isinstance(value, list) else [value]
    for item in items:
        for name, inner in item.items() if isinstance(item, Mapping) else ():
            yield f"{prefix}{name}"
            yield from _column_names(inner, f"{prefix}{name}.")
