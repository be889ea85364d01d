"""Limit the tests kept of a problem, and say which problems cannot be used."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from envs.problem import Problem, Test
from envs.tasks.storage.arrow_schema import statement_hash


@dataclass(frozen=True)
class SizeLimits:
    """Limits on a problem's tests: samples are kept first, then other tests, then generated ones.

    A random order seeded by the statement decides within each kind.
    """

    max_tests: int
    max_bytes: int  # of inputs and outputs together


def limit_tests(problem: Problem, limits: SizeLimits) -> Problem:
    """Return the problem with as many tests as the limits allow."""
    handmade, samples = len(problem.tests) - problem.generated_tests, set(problem.samples)
    hidden = [test for test in problem.tests[:handmade] if test not in samples]
    generated = list(problem.tests[handmade:])
    rng = random.Random(f"tests/{statement_hash(problem.statement)}")
    for tests in (hidden, generated):
        rng.shuffle(tests)
    kept: list[Test] = []
    bytes_left = limits.max_bytes
    for test in (*problem.samples, *hidden, *generated):
        size = len(test.input.encode()) + len(test.output.encode())
        if len(kept) < limits.max_tests and size <= bytes_left:
            kept.append(test)
            bytes_left -= size
    generated_set = set(generated)
    generated_kept = sum(test in generated_set for test in kept)
    return replace(problem, tests=tuple(kept), generated_tests=generated_kept)


def why_left_out(problem: Problem) -> str | None:
    """Return why a problem cannot be trained on, or None if it can."""
    if problem.checker == "needs_checker":
        return "needs a checker of its own"
    return None if problem.tests else "tests over task.max_test_bytes"
