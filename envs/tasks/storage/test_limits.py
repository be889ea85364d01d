"""What is kept of a problem's tests, and which problems are of no use."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from envs.problem import Problem, Test
from envs.tasks.storage.arrow_schema import statement_hash


@dataclass(frozen=True)
class Limits:
    """What of a problem's tests is kept: samples, then others, then generated ones.

    Which of each is drawn by the statement.
    """

    max_tests: int
    max_bytes: int  # of inputs and outputs together


def cap(problem: Problem, limits: Limits) -> Problem:
    """The problem with as many tests as the limits allow."""
    by_hand, samples = len(problem.tests) - problem.generated_tests, set(problem.samples)
    hidden = [test for test in problem.tests[:by_hand] if test not in samples]
    generated = list(problem.tests[by_hand:])
    rng = random.Random(f"tests/{statement_hash(problem.statement)}")
    for tests in (hidden, generated):
        rng.shuffle(tests)
    kept: list[Test] = []
    left = limits.max_bytes
    for test in (*problem.samples, *hidden, *generated):
        size = len(test.input.encode()) + len(test.output.encode())
        if len(kept) < limits.max_tests and size <= left:
            kept.append(test)
            left -= size
    last = set(generated)
    return replace(problem, tests=tuple(kept), generated_tests=sum(t in last for t in kept))


def why_left_out(problem: Problem) -> str | None:
    """Why a problem cannot be trained on; None where it can."""
    if problem.checker == "needs_checker":
        return "needs a checker of its own"
    if not problem.statement.strip():
        return "no statement"
    return None if problem.tests else "tests over task.max_test_bytes"
