"""What training has judged: distinct short programs on few tests, most of them wrong at the first;
and what it comes to have judged, where most pass.

Everything here is plain data, made in one place and handed to every checkout that is measured, so
that all of them judge the same bytes.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass

from experiments.benchmarks.judging.workload import small

# Of the programs of a training cell, early in a run, and late on problems that it has learnt.
EARLY_SHARE, LATE_SHARE = 0.1, 0.8
CRASHES = 4  # every so many of the wrong programs end with an exception
_LINES = (
    "n = int(input())\nvalues = list(map(int, input().split()))\n",
    "import sys\nn, *values = map(int, sys.stdin.read().split())\n",
    "input()\nvalues = [int(word) for word in input().split()]\n",
)


@dataclass(frozen=True)
class Cell:
    """One workload: problems as (input, output) pairs, and (problem, response, right) in order."""

    name: str
    problems: list[list[tuple[str, str]]]
    responses: list[tuple[int, str, bool]]

    def plain(self) -> dict:
        """As JSON has it."""
        return asdict(self)


def cells() -> list[Cell]:
    """The workloads, the one of passing programs at contest sizes last."""
    return [
        _training("training", 32, 8, EARLY_SHARE),
        _training("most pass", 16, 8, LATE_SHARE),
        _uniform("right, 1 test", 1, 96, right=True),
        _uniform("right, 5 tests", 5, 48, right=True),
        _uniform("right, 40 tests", 40, 16, right=True),
        _uniform("wrong, 5 tests", 5, 96, right=False),
        _passing(),
    ]


def _training(name: str, problems: int, group: int, right_share: float) -> Cell:
    drawn = random.Random(name)
    kinds = [_Kind(drawn) for _ in range(problems)]
    tests = [kind.tests(drawn, 1 + index % 10) for index, kind in enumerate(kinds)]
    responses = []
    for index, kind in enumerate(kinds):
        for _ in range(group):
            right = drawn.random() < right_share
            responses.append((index, kind.program(drawn, right), right))
    return Cell(name, tests, responses)


def _uniform(name: str, tests: int, count: int, *, right: bool) -> Cell:
    drawn = random.Random(name)
    kinds = [_Kind(drawn) for _ in range(16)]
    responses = [(i % 16, kinds[i % 16].program(drawn, right), right) for i in range(count)]
    return Cell(name, [kind.tests(drawn, tests) for kind in kinds], responses)


def _passing() -> Cell:
    """The programs of `workload.small`, each on 20 lines of 1,000 numbers; all outputs are right.

    What a program prints is expected, whatever it is: the checkouts are compared, not the programs.
    """
    jobs = small(20)
    tests = [[(text, _printed(job.program, text)) for text in job.inputs] for job in jobs]
    responses = [(index, job.program, True) for index, job in enumerate(jobs)]
    return Cell("passing, 20 large", tests, responses)


def _printed(program: str, text: str) -> str:
    """What a program of ours prints, run in this process."""
    import contextlib
    import io
    from unittest import mock

    output = io.StringIO()
    with mock.patch("sys.stdin", io.StringIO(text)), contextlib.redirect_stdout(output):
        exec(program, {"__name__": "__main__"})
    return output.getvalue()


class _Kind:
    """One kind of problem: those values that leave a remainder, each mapped, then summed."""

    def __init__(self, drawn: random.Random) -> None:
        self.divisor, self.remainder = drawn.randrange(2, 6), drawn.randrange(2)
        self.factor, self.shift = drawn.randrange(1, 9), drawn.randrange(100)

    def tests(self, drawn: random.Random, count: int) -> list[tuple[str, str]]:
        """(input, output) pairs; some value always counts."""
        made = []
        for _ in range(count):
            values = [drawn.randrange(100) for _ in range(drawn.randrange(3, 12))]
            values.append(self.remainder)
            total = sum(
                self.factor * v + self.shift for v in values if v % self.divisor == self.remainder
            )
            made.append((f"{len(values)}\n{' '.join(map(str, values))}\n", f"{total}\n"))
        return made

    def program(self, drawn: random.Random, right: bool) -> str:
        """A text that no other has; wrong ones answer one too much, or crash."""
        name = f"total_{drawn.randrange(10**9)}"
        crash = not right and drawn.randrange(CRASHES) == 0
        mapped = f"{self.factor} * v + {self.shift}" if not crash else "v // (n - n)"
        return (
            f"{drawn.choice(_LINES) if not crash else _LINES[0]}{name} = {0 if right else 1}\n"
            f"for v in values:\n    if v % {self.divisor} == {self.remainder}:\n"
            f"        {name} += {mapped}\nprint({name})\n"
        )
