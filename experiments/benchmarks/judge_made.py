"""The made workloads of `make bench-judge`: short programs as a model writes them in training."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from experiments.benchmarks.judge_probe import Workload

READS = (
    "n = int(input())\nvalues = list(map(int, input().split()))\n",
    "import sys\nn, *values = map(int, sys.stdin.read().split())\n",
    "input()\nvalues = [int(word) for word in input().split()]\n",
)
CRASH_EVERY = 4  # wrong programs


def workloads() -> list[Workload]:
    """Plain data, made once, so that all checkouts judge the same bytes."""
    rising = [1 + index % 10 for index in range(32)]  # tests of each problem
    return [
        _workload("training", rising, group=8, right_share=0.1),  # early in a run
        _workload("most pass", rising[:16], group=8, right_share=0.8),  # late in a run
        _workload("right, 1 test", [1] * 16, group=6, right_share=1.0),
        _workload("right, 5 tests", [5] * 16, group=3, right_share=1.0),
        _workload("right, 40 tests", [40] * 16, group=1, right_share=1.0),
        _workload("wrong, 5 tests", [5] * 16, group=6, right_share=0.0),
        _workload("right, 20 large", [20] * 16, group=1, right_share=1.0, values=1000),
    ]


def _workload(
    name: str, tests: Sequence[int], group: int, right_share: float, values: int | None = None
) -> Workload:
    """`group` short programs for each problem, no two of them alike. `values`: of each test."""
    rng = random.Random(name)
    problems: list[dict[str, Any]] = []
    responses: list[tuple[int, str, bool]] = []
    for index, count in enumerate(tests):
        problem = _FilteredSum(rng)
        pairs = [problem.test(rng, values or rng.randrange(3, 12)) for _ in range(count)]
        problems.append({"tests": pairs})
        for _ in range(group):
            right = rng.random() < right_share
            responses.append((index, problem.program(rng, right), right))
    return Workload(name, problems, responses)


class _FilteredSum:
    """A problem: map the values with a given remainder, then sum them."""

    def __init__(self, rng: random.Random) -> None:
        self.divisor, self.remainder = rng.randrange(2, 6), rng.randrange(2)
        self.factor, self.shift = rng.randrange(1, 9), rng.randrange(100)

    def test(self, rng: random.Random, count: int) -> tuple[str, str]:
        values = [rng.randrange(100) for _ in range(count)] + [self.remainder]
        counted = [value for value in values if value % self.divisor == self.remainder]
        total = sum(self.factor * value + self.shift for value in counted)
        return f"{len(values)}\n{' '.join(map(str, values))}\n", f"{total}\n"

    def program(self, rng: random.Random, right: bool) -> str:
        """A unique program. Wrong ones print one too many, or crash."""
        name, crash = f"total_{rng.randrange(10**9)}", not right and rng.randrange(CRASH_EVERY) == 0
        mapped = "v // (n - n)" if crash else f"{self.factor} * v + {self.shift}"
        return (
            f"{READS[0] if crash else rng.choice(READS)}{name} = {0 if right else 1}\n"
            f"for v in values:\n    if v % {self.divisor} == {self.remainder}:\n"
            f"        {name} += {mapped}\nprint({name})\n"
        )
