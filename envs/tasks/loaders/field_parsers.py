"""The odd fields of public contest rows, each turned into what a Problem holds, or refused.

TACO and APPS keep JSON, Python lists and free text inside strings; what cannot be understood is
refused with a reason, so that a loader can count it instead of judging against a guess.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from envs.problem import Test

Row = Mapping[str, Any]


class SkipRow(ValueError):
    """A row that cannot become a problem; the message is the reason, fit for counting."""


_SECONDS = {"ms": 0.001, "millisecond": 0.001, "min": 60.0, "minute": 60.0}
_MEGABYTES = {"b": 2.0**-20, "byte": 2.0**-20, "k": 2.0**-10, "m": 1.0, "g": 1024.0}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_FUNCTION = re.compile(r"^\s*(?:async\s+)?def\s+(\w+)\s*\(", re.MULTILINE)


def own_name(name: str, own: Any) -> str:
    """`data set/number` with the data set's own name for the problem, where it has one."""
    return name if own is None else f"{name.partition('/')[0]}/{own}"


def load_json(text: Any, what: str) -> Any:
    """JSON in a string, with integers of any length; SkipRow where it is empty or broken."""
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
    """Lift Python's limit on digits: test data hold integers of thousands of them."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def programs(value: Any, what: str) -> tuple[str, ...]:
    """A list of programs, or JSON of one; an absent or empty field holds none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    found = load_json(value, what)
    if not isinstance(found, list):
        raise SkipRow(f"{what} is not a list")
    return tuple(program for program in found if isinstance(program, str) and program.strip())


def tag_list(text: Any) -> tuple[str, ...]:
    """The text of a Python list of strings; anything else is taken for no tags."""
    try:
        found = ast.literal_eval(text) if isinstance(text, str) else text
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    if not isinstance(found, list | tuple):
        return ()
    return tuple(tag for tag in found if isinstance(tag, str))


def seconds(text: Any) -> float | None:
    """ "2 seconds", "0.5 - 1.5 sec", "1500 ms": the longest time named; None where none is."""
    if not isinstance(text, str):
        return None
    found = []
    for number, unit in _quantities(text):
        factor = _SECONDS.get(unit.removesuffix("s") if len(unit) > 2 else unit, 1.0)
        found.append(number * factor)
    return max(found, default=0.0) or None


def megabytes(text: Any) -> int | None:
    """ "256 megabytes", "65536 KB", "1.5 GB": in MiB, rounded up; None where no size is named."""
    if not isinstance(text, str):
        return None
    found = []
    for number, unit in _quantities(text):
        unit = unit.lower().removesuffix("s")
        factor = _MEGABYTES.get(unit, _MEGABYTES.get(unit[:1], 1.0))
        found.append(number * factor)
    return math.ceil(max(found, default=0.0)) or None


def _quantities(text: str) -> list[tuple[float, str]]:
    """(number, unit); in "1 - 2 seconds" the first number takes the unit that follows, too."""
    unit = ""
    found = []
    for number, own in reversed(_QUANTITY.findall(text)):
        unit = own.lower() or unit
        found.append((float(number), unit))
    return found


def function_name(declared: Any, starter_code: str) -> str | None:
    """The function to call, or None for a stdin problem.

    A non-empty starter code means call-based too; its first function, other than `__init__`, is
    the one. SkipRow where it defines none.
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
    """Tests of a program that reads stdin; texts, or lists of lines."""
    pairs = _pairs(inputs, outputs)
    tests = tuple(dict.fromkeys(Test(_text(one), _text(other)) for one, other in pairs))
    if not any(test.output.strip() for test in tests):
        raise SkipRow("all expected outputs are empty")
    return tests


def call_tests(inputs: Any, outputs: Any) -> tuple[Test, ...]:
    """Tests of a function: the argument list, and the returned value, as JSON.

    An input that is a text holds one JSON value a line. Where every output of a problem is a list
    of exactly one element, the list is the data set's wrapping and is taken off.
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
    """A text with plain line ends; a list as its lines; a number as printed."""
    if isinstance(value, str):
        return plain_lines(value)
    with integers_of_any_length():
        if isinstance(value, list):
            return "".join(f"{_line(item)}\n" for item in value)
        return f"{value}\n"


def plain_lines(text: str) -> str:
    r"""A text whose lines end in \n: judges of other systems turn \r\n into it, Python does not."""
    return text.replace("\r\n", "\n")


def _line(item: Any) -> str:
    return " ".join(map(str, item)) if isinstance(item, list) else str(item).removesuffix("\n")
