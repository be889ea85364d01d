"""The strength of a problem's tests: how many are hidden, and which cheap programs pass them.

A test that stands in the statement can be answered from a table. Data sets seldom mark such tests,
so they are looked for in the statement's text.

Cheap programs solve nothing, so a problem whose tests accept one pays for nothing. Each prints or
returns a constant, its input, or what a table of known tests says. Its outputs are therefore known
without running it, and the checker alone decides. `python -m envs.validate` runs the programs too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from envs.judge.checkers import TOKEN_CHECKERS, check, literal_text, parse_condition
from envs.judge.extract import MAX_PROGRAM_CHARS
from envs.problem import Problem, Test
from envs.sandbox.inside.framing import decode, encode

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
_FIRST_OUTPUT = CHEAP_PROGRAMS.index("first output")
_PRINTED = {name: name for name in CHEAP_PROGRAMS[5:]} | {"empty": ""}
_RETURNED = {"empty": None, "0": 0, "1": 1, "-1": -1, "YES": True, "NO": False}
_SHORT_CHARS = 100  # of an output whose tokens are counted first
# Between a sample's input and its output stand a heading or a few words.
MAX_GAP_CHARS = 100
MAX_GAP_LINES = 3  # the same in lines
MAX_LITERAL_CHARS = 10_000  # of a call that is written as Python; a longer one stays JSON
MAX_STATEMENT_CHARS = 200_000  # of the statement's end, where samples stand
MIN_LONG_CHARS = 1_000  # of an input that may be too long to stand in a short statement
MAX_OCCURRENCES = 2_000  # of a piece that are looked at: a short one stands in many places
HEAD_CHARS = 64  # of a piece that are searched for: a long text costs more to search for
_QUOTES_AND_BRACKETS = str.maketrans("()", "[]", "'\"`")
_ODD_VALUES = (ValueError, TypeError, LookupError, RecursionError)


@dataclass(frozen=True, slots=True)
class Strength:
    """Counts over a problem's tests."""

    tests: int
    hidden: int  # tests that do not stand in the statement
    distinct_outputs: int  # expected outputs that differ in more than white space
    # tests passed by each of CHEAP_PROGRAMS; None where running a checker program would decide
    cheap_passed: Sequence[int | None] | None

    def weakness(self, min_hidden: int) -> str | None:
        """Return why the problem should not be trained on, or None if it should be."""
        if self.hidden < min_hidden:
            return f"fewer than task.min_hidden_tests={min_hidden} hidden tests"
        # outputs that differ in case or by a rounding may be one to the checker
        passed = self.cheap_passed[_FIRST_OUTPUT] if self.cheap_passed else None
        one = self.distinct_outputs < 2 or passed == self.tests
        return "one output for all tests" if one else None


def measure_strength(problem: Problem) -> Strength:
    """Measure the strength of a problem's tests."""
    shown = shown_tests(problem)
    return Strength(
        tests=len(problem.tests),
        hidden=len(problem.tests) - len(shown),
        distinct_outputs=len({_squeezed(test.output) for test in problem.tests}),
        cheap_passed=passed_counts(problem, shown),
    )


# Tests that a statement shows.


def shown_tests(problem: Problem) -> list[Test]:
    """Return the tests that a reader of the problem knows.

    These are its samples, and tests of which the statement has the input and, at most
    MAX_GAP_CHARS behind it, the output. White space does not matter; for a function neither do
    quotes, case and the kind of brackets, and its arguments may stand apart in the same way.
    """
    squeezed = _called if problem.fn_name else _squeezed
    text = squeezed(problem.statement[-MAX_STATEMENT_CHARS:])
    samples = {(_squeezed(test.input), _squeezed(test.output)) for test in problem.samples}
    longest = max([MIN_LONG_CHARS, 4 * len(text), *(len(test.input) for test in problem.samples)])
    return [
        test
        for test in problem.tests
        if len(test.input) <= longest
        and (
            (_squeezed(test.input), _squeezed(test.output)) in samples
            or _stand_in_order(text, [squeezed(piece) for piece in _pieces(problem, test)])
        )
    ]


def stands_as_example(problem: Problem, test: Test) -> bool:
    """Return whether a test stands in the statement in a way that is no coincidence.

    Of a program that reads stdin: the lines of the input, and soon behind them those of the
    output, are whole lines. Of a function: its call stands before the result, or its arguments
    and the result stand behind "input:" and "output:".
    """
    statement = problem.statement[-MAX_STATEMENT_CHARS:]
    if not problem.fn_name:
        return _lines_stand_in_order(_lines(statement), _lines(test.input), _lines(test.output))
    text, (call, _) = _called(statement), python_texts(problem, test)
    *arguments, result = (_called(piece) for piece in _pieces(problem, test))
    return _stand_in_order(text, [_called(call), result]) or _stand_in_order(
        text, ["input:", *arguments, "output:", result]
    )


def python_texts(problem: Problem, test: Test) -> tuple[str, str]:
    """Return a test's input and expected output; of a function its call and result, as Python."""
    if problem.fn_name and len(test.input) + len(test.output) <= MAX_LITERAL_CHARS:
        with suppress(*_ODD_VALUES):
            arguments = ", ".join(map(literal_text, decode(test.input)))
            expected = literal_text(expected_value(problem, test))
            return f"{problem.fn_name}({arguments})", expected
    return test.input, test.output


def expected_value(problem: Problem, test: Test) -> Any:
    """Return the value that a test of a function expects. Raises ValueError or RecursionError."""
    if problem.checker != "assert":
        return json.loads(test.output)
    condition = parse_condition(test.output)
    if condition.kind in ("true", "false"):
        return condition.kind == "true"
    return condition.value


def _pieces(problem: Problem, test: Test) -> list[str]:
    """Return the texts that a statement shows of a test, in their order."""
    if problem.fn_name:
        with suppress(ValueError, TypeError, RecursionError):  # of values that no statement shows
            return [*map(literal_text, [*decode(test.input), expected_value(problem, test)])]
    return [test.input, test.output]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _called(text: str) -> str:
    """Return a text without what differs between Python, JSON and the ways of statements."""
    text = _squeezed(text).casefold().translate(_QUOTES_AND_BRACKETS).replace("null", "none")
    for mark in ",:[]{}":
        text = text.replace(f" {mark}", mark).replace(f"{mark} ", mark)
    return text


def _lines(text: str) -> list[str]:
    """Return the lines that are not empty, without superfluous blanks; fences are no lines."""
    lines = [_squeezed(line) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("```")]


def _lines_stand_in_order(lines: list[str], first: list[str], second: list[str]) -> bool:
    """Return whether `lines` has `first`, and at most MAX_GAP_LINES behind it `second`."""
    for start in range(len(lines) - len(first) + 1):
        if first[:1] not in ([], lines[start : start + 1]):
            continue  # most lines, without a copy of those behind them
        end = start + len(first)
        if lines[start:end] == first and any(
            lines[begin : begin + len(second)] == second
            for begin in range(end, end + MAX_GAP_LINES + 1)
        ):
            return True
    return False


def _stand_in_order(text: str, pieces: Sequence[str]) -> bool:
    """Return whether the pieces that are not empty stand in `text`, each close behind the last."""
    first, *others = [piece for piece in pieces if piece] or [text + "."]
    for start in _occurrences(text, first, 0, len(text)):
        end: int | None = start + len(first)
        for piece in others:
            if end is not None:
                found = next(_occurrences(text, piece, end, end + MAX_GAP_CHARS), None)
                end = None if found is None else found + len(piece)
        if end is not None:
            return True
    return False


def _occurrences(text: str, piece: str, first: int, last: int) -> Iterator[int]:
    """Yield where `piece` begins between two positions, but not as a part of a word or number."""
    head = piece[:HEAD_CHARS]
    for _ in range(MAX_OCCURRENCES):
        first = text.find(head, first, last + len(head))
        if first < 0:
            return
        end = first + len(piece)
        edges = text[first - 1 : first] + piece[0], piece[-1] + text[end : end + 1]
        is_part = any(len(edge) == 2 and edge.isalnum() for edge in edges)
        if not is_part and text.startswith(piece, first):
            yield first
        first += 1


# Cheap programs.


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


def cheap_earnings(strengths: Sequence[Strength]) -> dict[str, Any]:
    """Return what problems pay for CHEAP_PROGRAMS, as plain values for run.json.

    `earned` counts the problems that accept a program, and `mean_share` is the mean share of tests
    that it passes; both over the `compared` problems, which need no checker program.
    """
    counts = [(one.tests, one.cheap_passed) for one in strengths if one.tests and one.cheap_passed]
    earned, shares = {}, {}
    for index, name in enumerate(CHEAP_PROGRAMS):
        earned[name] = sum(passed[index] == tests for tests, passed in counts)
        share = sum(((passed[index] or 0) / tests / len(counts) for tests, passed in counts), 0.0)
        shares[name] = round(share, 4)
    return {
        "problems": len(strengths),
        "compared": len(counts),
        "earned_by_any": sum(tests in passed for tests, passed in counts),
        "earned": earned,
        "mean_share": shares,
    }


def earnings_line(earnings: Mapping[str, Any]) -> str:
    """Say which cheap programs earn the reward of training problems; "" if none does."""
    if not earnings["earned_by_any"]:
        return ""
    ordered = sorted(earnings["earned"].items(), key=lambda item: -item[1])
    programs = ", ".join(f"{name}: {count}" for name, count in ordered if count)
    share = f"{earnings['earned_by_any']} of {earnings['compared']}"
    return f"programs that solve nothing earn the reward of {share} training problems ({programs})"


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


def _scripts(problem: Problem, shown: Sequence[Test]) -> Iterator[CheapProgram]:
    """Yield the programs that read stdin."""
    source = "import sys\nsys.stdout.buffer.write({})\n".format
    constants = dict(_PRINTED)
    if problem.tests:
        constants["first output"] = problem.tests[0].output
    if shown:
        constants["longest sample output"] = max((test.output for test in shown), key=len)
    for name, text in constants.items():
        yield CheapProgram(name, source(repr(text.encode())), _always(text))
    echo = source("sys.stdin.buffer.read()")
    yield CheapProgram("echo of the input", echo, lambda test: test.input)
    if shown:
        table = {test.input: test.output for test in reversed(shown)}
        in_bytes = {text.encode(): output.encode() for text, output in table.items()}
        looked_up = source(f"{in_bytes!r}.get(sys.stdin.buffer.read(), b'')")
        yield CheapProgram("samples table", looked_up, lambda test: table.get(test.input, ""))


def _functions(problem: Problem, shown: Sequence[Test]) -> Iterator[CheapProgram]:
    """Yield the programs that define the problem's function."""
    head = f"def {problem.fn_name}(*arguments):\n"
    constants: dict[str, Any] = dict(_RETURNED)
    with suppress(ValueError, RecursionError):
        if problem.tests:
            constants["first output"] = expected_value(problem, problem.tests[0])
        if shown:
            longest = max(shown, key=lambda test: len(test.output))
            constants["longest sample output"] = expected_value(problem, longest)
    for name, value in constants.items():
        with suppress(ValueError, RecursionError):
            source = f"{head}    return {literal_text(value)}\n"
            yield CheapProgram(name, source, _always(encode(value)))
    yield CheapProgram("echo of the input", f"{head}    return arguments[0]\n", _first_argument)
    if shown:
        with suppress(ValueError, RecursionError):
            yield _table_function(problem, shown, head)


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
    with suppress(*_ODD_VALUES):
        return encode(decode(test.input)[0])
    return None
