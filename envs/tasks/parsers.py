"""Parsers for fields of data-set rows.

TACO and APPS store JSON, Python lists and free text inside strings. A field that cannot be parsed
raises SkipRow with a reason: the row is counted instead of being judged against a guess.
"""

from __future__ import annotations

import ast
import datetime
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from envs.judge.extract import extract_program
from envs.problem import Test

Row = Mapping[str, Any]


class SkipRow(ValueError):
    """A row that gives no problem; the message is the reason, and rows are counted by it."""


_SECONDS = {"ms": 0.001, "millisecond": 0.001, "min": 60.0, "minute": 60.0}
_MEGABYTES = {"b": 2.0**-20, "byte": 2.0**-20, "k": 2.0**-10, "m": 1.0, "g": 1024.0}
_FUNCTIONAL = ("functional", "function_call")  # tests of LiveCodeBench, PrimeIntellect
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_FUNCTION = re.compile(r"^\s*(?:async\s+)?def\s+(\w+)\s*\(", re.MULTILINE)


def named_by_row(default_name: str, row_id: Any) -> str:
    """Return `prefix/row_id`; the default name, `prefix/row number`, if the row has no id."""
    return default_name if row_id is None else f"{default_name.partition('/')[0]}/{row_id}"


def load_json(text: Any, what: str) -> Any:
    """Parse JSON with integers of any length. Raises SkipRow if it is empty or broken."""
    if not isinstance(text, str):
        return text
    if not text.strip():
        raise SkipRow(f"{what} is empty")
    try:
        with integers_of_any_length():
            return json.loads(text)
    except (ValueError, RecursionError):
        raise SkipRow(f"{what} is not JSON") from None


@contextmanager
def integers_of_any_length() -> Iterator[None]:
    """Lift Python's limit on digits of an int: test data have integers of thousands of digits."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def programs(value: Any, what: str) -> tuple[str, ...]:
    """Parse a list of programs, or its JSON; an absent or empty field has none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    items = load_json(value, what)
    if not isinstance(items, list):
        raise SkipRow(f"{what} is not a list")
    return tuple(program for program in items if isinstance(program, str) and program.strip())


def tag_list(text: Any) -> tuple[str, ...]:
    """Parse a list of strings, or its Python text; anything else counts as no tags."""
    try:
        tags = ast.literal_eval(text) if isinstance(text, str) else text
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    if not isinstance(tags, list | tuple):
        return ()
    return tuple(tag for tag in tags if isinstance(tag, str))


def seconds(text: Any) -> float | None:
    """Return the longest time in "2 seconds", "0.5 - 1.5 sec" or "1500 ms"; None without one."""

    def factor(unit: str) -> float:
        return _SECONDS.get(unit.removesuffix("s") if len(unit) > 2 else unit, 1.0)

    return _largest(text, factor) or None


def megabytes(text: Any) -> int | None:
    """Return the MiB, rounded up, of "256 megabytes", "65536 KB" or "1.5 GB"; None without one."""

    def factor(unit: str) -> float:
        unit = unit.removesuffix("s")
        return _MEGABYTES.get(unit, _MEGABYTES.get(unit[:1], 1.0))

    return math.ceil(_largest(text, factor)) or None


def _largest(text: Any, factor: Callable[[str], float]) -> float:
    """Return the largest quantity in a text, 0 without one; in "1 - 2 s" both have the unit."""
    unit, largest = "", 0.0
    for number, stated_unit in reversed(_QUANTITY.findall(text if isinstance(text, str) else "")):
        unit = stated_unit.lower() or unit
        largest = max(largest, float(number) * factor(unit))
    return largest


def function_name(declared: Any, starter_code: str) -> str | None:
    """Return the function to call, or None for a stdin problem.

    Starter code makes a problem call-based too: the function is its first one other than
    `__init__`. Raises SkipRow if it defines none.
    """
    if isinstance(declared, str) and declared.strip():
        return declared.strip()
    if not starter_code.strip():
        return None
    names = [name for name in _FUNCTION.findall(starter_code) if name != "__init__"]
    if not names:
        raise SkipRow("starter code without a function")
    return names[0]


def stdin_tests(inputs: Any, outputs: Any) -> tuple[Test, ...]:
    """Build tests of a program that reads stdin, from texts, numbers or lists of lines."""
    pairs = _pairs(inputs, outputs)
    tests = tuple(dict.fromkeys(Test(_text(stdin), _text(stdout)) for stdin, stdout in pairs))
    if not any(test.output.strip() for test in tests):
        raise SkipRow("all expected outputs are empty")
    return tests


def call_tests(inputs: Any, outputs: Any) -> tuple[Test, ...]:
    """Build tests of a function: argument list and returned value as JSON.

    An input given as text has one JSON value per line. If every output of a problem is a list of
    exactly one element, that list is the data set's wrapping and is removed.
    """
    pairs = _pairs(inputs, outputs)
    wrapped = all(isinstance(output, list) and len(output) == 1 for _, output in pairs)
    tests = []
    for arguments, output in pairs:
        if isinstance(arguments, str):
            lines = [line for line in arguments.splitlines() if line.strip()]
            arguments = [load_json(line, "an argument") for line in lines]
            output = load_json(output, "a returned value")
        elif not isinstance(arguments, list):
            arguments = [arguments]
        output = output[0] if wrapped else output
        with integers_of_any_length():
            tests.append(Test(json.dumps(arguments), json.dumps(output)))
    return tuple(dict.fromkeys(tests))


def _pairs(inputs: Any, outputs: Any) -> list[tuple[Any, Any]]:
    inputs = [inputs] if isinstance(inputs, str) else inputs
    outputs = [outputs] if isinstance(outputs, str) else outputs
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise SkipRow("inputs and outputs are not lists")
    if not inputs and not outputs:
        raise SkipRow("no tests")
    if len(inputs) != len(outputs):
        raise SkipRow("inputs and outputs differ in number")
    return list(zip(inputs, outputs, strict=True))


def _text(value: Any) -> str:
    """Return a text with \\n line ends; a list becomes its lines, a number is printed."""
    if isinstance(value, str):
        return plain_lines(value)
    if value is None or isinstance(value, dict):
        raise SkipRow("a test is neither a text nor a list of lines")
    with integers_of_any_length():
        if isinstance(value, list):
            return plain_lines("".join(f"{_line(item)}\n" for item in value))
        return f"{value}\n"


def plain_lines(text: str) -> str:
    r"""Replace \r\n by \n, as other judges do and Python's stdin does not."""
    return text.replace("\r\n", "\n")


def _line(item: Any) -> str:
    return " ".join(map(str, item)) if isinstance(item, list) else str(item).removesuffix("\n")


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
    found = load_json(metadata, "metadata") if metadata else {}
    in_metadata = found.get("func_name") if isinstance(found, Mapping) else None
    declared = next(iter(names), None) or in_metadata
    fn_name = function_name(declared, starter_code)
    if fn_name is None:
        raise SkipRow("the tests call a function without a name")
    return fn_name, call_tests(inputs, outputs)
