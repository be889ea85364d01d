"""Cheap programs: they solve nothing, so a problem whose tests accept one pays for nothing.

Each prints or returns a constant, its input, or what a table of known tests says. Its outputs are
therefore known without running it, and the checker alone decides. `python -m envs.validate` runs
the programs as well and reports any difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from envs.judge.checkers import TOKEN_CHECKERS, check
from envs.judge.extract import MAX_PROGRAM_CHARS
from envs.judge.returned_values import literal_text, parse_condition
from envs.problem import Problem, Test
from envs.sandbox.inside.values import decode, encode

# In the order of `passed_counts`. A function returns None, True and False for empty, YES and NO.
CHEAP_PROGRAMS = (
    "samples table",  # the outputs of the tests that the statement shows, else nothing
    "first output",  # that of the problem's first test
    "longest sample output",  # among the tests that the statement shows
    "echo of the input",  # a function returns its first argument
    "empty",
    *("0", "1", "-1", "YES", "NO"),
)
COMPARING_CHECKERS = (*TOKEN_CHECKERS, "call", "assert")
_PRINTED = {name: name for name in CHEAP_PROGRAMS[5:]} | {"empty": ""}
_RETURNED = {"empty": None, "0": 0, "1": 1, "-1": -1, "YES": True, "NO": False}
_SHORT_CHARS = 100  # of an output whose tokens are counted first


@dataclass(frozen=True, slots=True)
class CheapProgram:
    """A program, and what it prints or returns for a test; None if it fails."""

    name: str  # one of CHEAP_PROGRAMS
    source: str
    output: Callable[[Test], str | None]


def cheap_programs(problem: Problem, shown: Sequence[Test]) -> list[CheapProgram]:
    """Return the cheap programs for a problem, of which two need tests that the statement shows.

    `shown`: these tests. A value that no literal expresses gives no program.
    """
    make = _functions if problem.fn_name else _scripts
    programs = {program.name: program for program in make(problem, shown)}
    return [programs[name] for name in CHEAP_PROGRAMS if name in programs]


def passed_counts(problem: Problem, shown: Sequence[Test]) -> list[int | None] | None:
    """Return how many of the problem's tests each of CHEAP_PROGRAMS passes, None without it.

    None instead of the list for a problem that no comparison of outputs can decide.
    """
    if problem.checker.split(" ")[0] not in COMPARING_CHECKERS:  # options follow the name
        return None
    counts = {program.name: _passed(problem, program) for program in cheap_programs(problem, shown)}
    return [counts.get(name) for name in CHEAP_PROGRAMS]


def expected_value(problem: Problem, test: Test) -> Any:
    """Return the value that a test of a function expects. Raises ValueError or RecursionError."""
    if problem.checker != "assert":
        return json.loads(test.output)
    condition = parse_condition(test.output)
    if condition.kind in ("true", "false"):
        return condition.kind == "true"
    return condition.value


def _passed(problem: Problem, program: CheapProgram) -> int:
    if len(program.source) > MAX_PROGRAM_CHARS:
        return 0  # the judge takes so long a text for no program
    outputs = ((test, program.output(test)) for test in problem.tests)
    return sum(output is not None and _accepts(problem, test, output) for test, output in outputs)


def _accepts(problem: Problem, test: Test, output: str) -> bool:
    if not problem.fn_name and len(output) < _SHORT_CHARS:
        # Most expected outputs are longer. The number of tokens, which every checker of printed
        # outputs compares, decides without splitting a long text.
        tokens = len(output.split())
        if len(test.output.split(None, tokens + 1)) > tokens:
            return False
    return check(problem.checker, test.output, output)[0]


def _scripts(problem: Problem, shown: Sequence[Test]) -> list[CheapProgram]:
    """Return the programs that read stdin."""
    constants = dict(_PRINTED)
    if problem.tests:
        constants["first output"] = problem.tests[0].output
    if shown:
        constants["longest sample output"] = max((test.output for test in shown), key=len)
    programs = [
        CheapProgram(name, _write(repr(text.encode())), _always(text))
        for name, text in constants.items()
    ]
    echo = _write("sys.stdin.buffer.read()")
    programs.append(CheapProgram("echo of the input", echo, lambda test: test.input))
    if shown:
        table = {test.input: test.output for test in reversed(shown)}
        in_bytes = {text.encode(): output.encode() for text, output in table.items()}
        source = _write(f"{in_bytes!r}.get(sys.stdin.buffer.read(), b'')")
        programs.append(
            CheapProgram("samples table", source, lambda test: table.get(test.input, ""))
        )
    return programs


def _write(expression: str) -> str:
    return f"import sys\nsys.stdout.buffer.write({expression})\n"


def _functions(problem: Problem, shown: Sequence[Test]) -> list[CheapProgram]:
    """Return the programs that define the problem's function."""
    head = f"def {problem.fn_name}(*arguments):\n"
    constants: dict[str, Any] = dict(_RETURNED)
    with suppress(ValueError, RecursionError):
        if problem.tests:
            constants["first output"] = expected_value(problem, problem.tests[0])
        if shown:
            longest = max(shown, key=lambda test: len(test.output))
            constants["longest sample output"] = expected_value(problem, longest)
    programs = []
    for name, value in constants.items():
        with suppress(ValueError, RecursionError):
            source = f"{head}    return {literal_text(value)}\n"
            programs.append(CheapProgram(name, source, _always(encode(value))))
    programs.append(
        CheapProgram("echo of the input", f"{head}    return arguments[0]\n", _first_argument)
    )
    if shown:
        with suppress(ValueError, RecursionError):
            programs.append(_table_function(problem, shown, head))
    return programs


def _table_function(problem: Problem, shown: Sequence[Test], head: str) -> CheapProgram:
    pairs = [(decode(test.input), expected_value(problem, test)) for test in shown]
    source = (
        f"TABLE = {literal_text(pairs)}\n{head}    for given, output in TABLE:\n"
        "        if given == list(arguments):\n            return output\n"
    )

    def output(test: Test) -> str | None:
        with suppress(ValueError, RecursionError):
            given = decode(test.input)
            return encode(next((value for known, value in pairs if known == given), None))
        return None

    return CheapProgram("samples table", source, output)


def _always(text: str) -> Callable[[Test], str]:
    return lambda _: text


def _first_argument(test: Test) -> str | None:
    with suppress(ValueError, TypeError, LookupError, RecursionError):
        return encode(decode(test.input)[0])
    return None
