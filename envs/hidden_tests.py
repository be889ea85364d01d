"""The strength of a problem's tests: how many are hidden, and which cheap programs pass them.

A test that stands in the statement can be answered from a table. Data sets seldom mark such tests,
so they are looked for in the statement's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from envs.cheap_programs import CHEAP_PROGRAMS, expected_value, passed_counts
from envs.judge.returned_values import literal_text
from envs.problem import Problem, Test
from envs.sandbox.inside.values import decode

# Between a sample's input and its output stand a heading or a few words.
MAX_GAP_CHARS = 100
MAX_GAP_LINES = 3  # the same in lines
MAX_LITERAL_CHARS = 10_000  # of a call that is written as Python; a longer one stays JSON
MAX_STATEMENT_CHARS = 200_000  # of the statement's end, where samples stand
MIN_LONG_CHARS = 1_000  # of an input that may be too long to stand in a short statement
MAX_OCCURRENCES = 2_000  # of a piece that are looked at: a short one stands in many places
HEAD_CHARS = 64  # of a piece that are searched for: a long text costs more to search for
_FIRST_OUTPUT = CHEAP_PROGRAMS.index("first output")
_QUOTES_AND_BRACKETS = str.maketrans("()", "[]", "'\"`")


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
        with suppress(ValueError, TypeError, LookupError, RecursionError):  # of odd values
            arguments = ", ".join(map(literal_text, decode(test.input)))
            expected = literal_text(expected_value(problem, test))
            return f"{problem.fn_name}({arguments})", expected
    return test.input, test.output


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
