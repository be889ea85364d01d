"""Your own data set (`task=own`): `task.fields` maps a problem's fields to your columns.

A nested column is written with dots, `tests.input`. A list on the path is searched item by item,
and a text on the path is parsed as JSON.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from envs.problem import CheckerProgram, Problem, Test
from envs.tasks.config import FieldsConfig
from envs.tasks.loaders.own_columns import REQUIRED, as_list, lookup, missing_case
from envs.tasks.parsers import field_parsers
from envs.tasks.parsers.contest_fields import iso_date, rating
from envs.tasks.parsers.field_parsers import Row, SkipRow, named_by_row
from envs.tasks.parsers.special_judge import checker_for

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
    time_limit, memory = values.get("time_limit"), values.get("memory_limit")
    fn_name = field_parsers.function_name(values.get("fn_name"), starter_code)
    if not _is_name(values.get("fn_name")):
        raise SkipRow(f"{fields.fn_name} is not the plain name of a function")
    _check_cases(row, fields, values, nulls=fn_name is not None)
    parse_tests = field_parsers.call_tests if fn_name else field_parsers.stdin_tests
    tests = parse_tests(as_list(values["inputs"]), as_list(values["outputs"]))
    samples: tuple[Test, ...] = ()
    if _some(values.get("sample_inputs")):
        samples = parse_tests(
            as_list(values["sample_inputs"]), as_list(values.get("sample_outputs"))
        )
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
        solutions=tuple(as_list(values.get("solutions")) or ()),
        incorrect_solutions=tuple(as_list(values.get("incorrect_solutions")) or ()),
        checker_program=checker,
    )


def _is_name(name: Any) -> bool:
    """Return whether this can name a function; a method of a class Solution is named by itself."""
    if isinstance(name, str) and (name := name.strip()):
        return name.isidentifier() and not keyword.iskeyword(name)
    return not name  # the program reads stdin


def _check_cases(row: Row, fields: FieldsConfig, values: Mapping[str, Any], nulls: bool) -> None:
    """Raise SkipRow for a test case without its input or output; `nulls`: null is a value."""
    no_sample = not any(map(_some, (values.get(key) for key in _OF_SAMPLES)))
    for key in (*_OF_TESTS, *(() if no_sample else _OF_SAMPLES)):
        column = getattr(fields, key)
        if column and (case := missing_case(row, column)):
            raise SkipRow(f"{column} is missing in case {case}")
        items = as_list(values.get(key))
        if not nulls and isinstance(items, list) and None in items:
            raise SkipRow(f"{column} is null in case {items.index(None) + 1}")


def _some(value: Any) -> bool:
    """Return whether a column, or some case of a nested one, has a value."""
    return any(item is not None for item in value) if isinstance(value, list) else bool(value)


def _checker_program(source: Any) -> CheckerProgram | None:
    if not source:
        return None
    return CheckerProgram("testlib" if "testlib.h" in source else "python", source)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
