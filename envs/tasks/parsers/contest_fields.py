"""Parsers for what newer data sets add: contest dates, ratings, fenced programs, lists of tests."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from envs.judge.extract import extract_program
from envs.problem import Test
from envs.tasks.parsers.field_parsers import (
    SkipRow,
    call_tests,
    function_name,
    load_json,
    stdin_tests,
)

_FUNCTIONAL = ("functional", "function_call")  # LiveCodeBench, PrimeIntellect


def iso_date(value: Any) -> str:
    """Return YYYY-MM-DD of a text that begins so, or of seconds since 1970 (UTC); else ""."""
    try:
        if isinstance(value, str):
            return datetime.date.fromisoformat(value[:10]).isoformat()
        if isinstance(value, int | float):
            return datetime.datetime.fromtimestamp(value, datetime.UTC).date().isoformat()
        if isinstance(value, datetime.date):  # Parquet's own dates
            return value.isoformat()[:10]
    except (ValueError, OverflowError, OSError):
        pass
    return ""


def rating(value: Any) -> int | None:
    """Return a rating; None without one, which data sets also write as 0."""
    return int(value) if isinstance(value, int | float) and 0 < value < 1e9 else None


def fenced_programs(programs: Sequence[str]) -> tuple[str, ...]:
    """Return programs without the Markdown fences that they stand in."""
    inside = (extract_program(text) if "```" in text else text for text in programs)
    return tuple(program for program in inside if program)


def object_of(value: Any, what: str) -> Mapping[str, Any]:
    """Return a JSON object, given as such or as its text; an absent one is empty."""
    found = load_json(value, what) if value else {}
    return found if isinstance(found, Mapping) else {}


def tests_of(items: Any, metadata: Any, starter_code: str) -> tuple[str | None, tuple[Test, ...]]:
    """Return (the function to call or None, tests) of a list of {input, output, type}.

    The type is called `testtype` by LiveCodeBench and `type` by PrimeIntellect; the function stands
    in a test, in the row's metadata, or in its starter code. Raises SkipRow.
    """
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise SkipRow("tests are not a list of objects")
    if not items:
        raise SkipRow("no tests")
    kinds = {(item.get("testtype") or item.get("type")) in _FUNCTIONAL for item in items}
    if len(kinds) > 1:
        raise SkipRow("some tests call a function and others do not")
    inputs = [item.get("input") for item in items]
    outputs = [item.get("output") for item in items]
    if None in inputs or None in outputs:
        raise SkipRow("a test without an input or an output")
    if not kinds.pop():
        return None, stdin_tests(inputs, outputs)
    names = {item.get("fn_name") for item in items} - {None}
    if len(names) > 1:
        raise SkipRow("the tests call more than one function")
    declared = next(iter(names), None) or object_of(metadata, "metadata").get("func_name")
    fn_name = function_name(declared, starter_code)
    if fn_name is None:
        raise SkipRow("the tests call a function without a name")
    return fn_name, call_tests(inputs, outputs)
