"""The MiniContests tasks, short and long: splits, sampling of compositions, and the prompt.

A problem composes one part for each slot of a family (for example a condition, a map and a
reduction). No two splits share a composition, so a policy is evaluated on new combinations of known
parts. The same seed gives the same bytes everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from envs.problem import Problem, Test
from envs.tasks.config import TaskConfig
from envs.tasks.mini import MINI, MINI_LONG, PROBLEM_SETS
from envs.tasks.mini.build import build
from envs.tasks.mini.composition import Family, draft
from envs.tasks.mini.splits import TIERS, ProblemSet, compositions, shuffled
from envs.tasks.storage.generated_cache import cached_problems
from envs.tasks.task import Task, data_hash

SPLITS = {"train": 512, "tune": 60, "choose": 120, "test": 200}  # default sizes
_ROUNDS = 6  # parameter draws per composition


def make(config: TaskConfig) -> Task:
    """Build the task of conf/task/mini.yaml."""
    return _make(MINI, config)


def make_long(config: TaskConfig) -> Task:
    """Build the task of conf/task/mini_long.yaml."""
    return _make(MINI_LONG, config)


def load(split: str, size: int | None = None, seed: int = 0, name: str = "mini") -> list[Problem]:
    """Return `size` problems of a split, spread evenly over families and tiers, in random order.

    `name` is mini or mini_long. A composition repeats, with other parameters, only after all others
    of its family and tier. A family without compositions of a tier has no problem of that tier.
    Raises ValueError for an unknown split or a size that is not positive.
    """
    if split not in SPLITS:
        raise ValueError(f"{name} has no split {split!r}: choose one of {', '.join(SPLITS)}")
    size = SPLITS[split] if size is None else size
    if size < 1:
        raise ValueError(f"{name}: size must be at least 1, not {size}")
    problem_set = PROBLEM_SETS[name]
    cells = [
        _cell(problem_set, family, tier, split, seed)
        for tier in TIERS
        for family in problem_set.families
        if any(family.tier(parts) == tier for parts in compositions(problem_set, family, split))
    ]
    by_statement: dict[str, Problem] = {}
    for cell in itertools.cycle(cells):
        if len(by_statement) == size:
            break
        problem = next(cell)
        by_statement.setdefault(problem.statement, problem)
    problems = list(by_statement.values())
    problem_set.stream(split, seed).shuffle(problems)
    return [
        replace(problem, name=f"{name}/{split}/{index:04d}", source=name)
        for index, problem in enumerate(problems)
    ]


def prompt(problem: Problem) -> str:
    """Return the user message: the statement and its samples, in few tokens."""
    return render(problem.statement, problem.samples)


def response(program: str) -> str:
    """Return the bare program, which is the nano model's format."""
    return program


def render(statement: str, samples: Sequence[Test]) -> str:
    """Return a statement with its samples as one text."""
    shown = [f"in:\n{test.input.rstrip()}\nout:\n{test.output.rstrip()}" for test in samples]
    return "\n".join([statement, *shown])


def _make(problem_set: ProblemSet, config: TaskConfig) -> Task:
    name = problem_set.name
    problems: dict[str, Any] = {
        split: cached_problems(
            f"{name}-{split}", load, split, getattr(config, f"{split}_problems"), 0, name
        )
        for split in SPLITS
    }
    return Task(**problems, prompt=prompt, response=response, data_hash=data_hash(problems, prompt))


def _cell(
    problem_set: ProblemSet, family: Family, tier: str, split: str, seed: int
) -> Iterator[Problem]:
    """Yield problems of one family and tier endlessly, cycling over its compositions."""
    rng = problem_set.stream(split, seed, family.name, tier)
    for composition in itertools.cycle(shuffled(problem_set, family, tier, split, rng)):
        for _ in range(_ROUNDS):
            problem = build(draft(rng, family, composition), rng)
            if problem is not None:
                yield problem
                break
