"""The programs that `envs.validate` runs: a data set's own, with their labels, and cheap ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from envs.cheap_programs import CHEAP_PROGRAMS, cheap_programs
from envs.hidden_tests import Strength, measure_strength, shown_tests
from envs.problem import Problem
from envs.tasks.parsers.special_judge import comparing_checker
from envs.tasks.selection import StoredProblems
from envs.tasks.storage.arrow_schema import content_digest

KINDS = ("solution", "incorrect")
CHEAP = "cheap"  # the kind of a program that solves nothing


@dataclass(frozen=True, slots=True)
class LabelledProgram:
    """One program of the data set, which calls it right or wrong, or a cheap one."""

    problem: Problem
    kind: str  # one of KINDS, or CHEAP
    index: int  # among the row's programs of this kind, or in CHEAP_PROGRAMS
    program: str
    needs_checker: bool  # the problem accepts several answers
    digest: str  # of the problem's content, as the data set has it
    strength: Strength


def labelled_programs(
    problems: Iterable[Problem], first: int | None, cheap: bool
) -> Iterator[LabelledProgram]:
    """Yield the problems' programs in order: at most `first` right and `first` wrong ones each.

    With `cheap`, CHEAP_PROGRAMS follow, if the problem has tests. A problem that needs a checker
    gets the one that compares its outputs.
    """
    for problem in problems:
        digest, needs_checker = content_digest(problem), problem.checker == "needs_checker"
        if needs_checker:
            comparing = comparing_checker(problem.statement, problem.tests)
            problem = replace(problem, checker="call" if problem.fn_name else comparing)
        about = (needs_checker, digest, measure_strength(problem))
        for kind, programs in zip(
            KINDS, (problem.solutions, problem.incorrect_solutions), strict=True
        ):
            for index, program in enumerate(programs[:first]):
                yield LabelledProgram(problem, kind, index, program, *about)
        if cheap and problem.tests:
            for made in cheap_programs(problem, shown_tests(problem)):
                number = CHEAP_PROGRAMS.index(made.name)
                yield LabelledProgram(problem, CHEAP, number, made.source, *about)


def count_programs(problems: Sequence[Problem], first: int | None) -> int:
    """Count the problems' own programs, at most `first` of each kind; stored ones are not read."""
    columns = ("solutions", "incorrect_solutions")
    if isinstance(problems, StoredProblems):
        lengths = [
            len(entry.batch.column(column)[entry.row])
            for entry in problems.entries
            for column in columns
        ]
    else:
        lengths = [len(getattr(problem, column)) for problem in problems for column in columns]
    return sum(length if first is None else min(length, first) for length in lengths)


def count_cheap(strengths: Iterable[Strength]) -> int:
    """Count the cheap programs of problems, of which two need tests that the statement shows."""
    without = len(CHEAP_PROGRAMS) - 2
    counts = [(strength.tests, strength.hidden) for strength in strengths]
    return sum(
        len(CHEAP_PROGRAMS) if hidden < tests else without for tests, hidden in counts if tests
    )
