"""The MiniContests task: splits, sampling of compositions, and the prompt.

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
from envs.tasks.mini import FAMILIES
from envs.tasks.mini.build import build
from envs.tasks.mini.composition import Family, draft, tier_of
from envs.tasks.mini.splits import TIERS, compositions, shuffled, stream
from envs.tasks.storage.generated_cache import cached_problems
from envs.tasks.task import Task, data_hash

SPLITS = {"train": 512, "tune": 60, "choose": 120, "test": 200}  # default sizes
_ROUNDS = 6  # parameter draws per composition


def make(config: TaskConfig) -> Task:
    """Build the task of conf/task/mini.yaml."""
    sizes = {split: getattr(config, f"{split}_problems") for split in SPLITS}
    problems: dict[str, Any] = {
        split: cached_problems(f"mini-{split}", load, split, size) for split, size in sizes.items()
    }
    return Task(**problems, prompt=prompt, response=response, data_hash=data_hash(problems, prompt))


def load(split: str, size: int | None = None, seed: int = 0) -> list[Problem]:
    """Return `size` problems of a split, spread evenly over families and tiers, in random order.

    A composition repeats, with other parameters, only after all others of its family and tier. A
    family without compositions of a tier has no problem of that tier.
    Raises ValueError for an unknown split or a size that is not positive.
    """
    if split not in SPLITS:
        raise ValueError(f"mini has no split {split!r}: choose one of {', '.join(SPLITS)}")
    size = SPLITS[split] if size is None else size
    if size < 1:
        raise ValueError(f"mini: size must be at least 1, not {size}")
    cells = [
        _cell(family, tier, split, seed)
        for tier in TIERS
        for family in FAMILIES
        if any(tier_of(composition) == tier for composition in compositions(family, split))
    ]
    by_statement: dict[str, Problem] = {}
    for cell in itertools.cycle(cells):
        if len(by_statement) == size:
            break
        problem = next(cell)
        by_statement.setdefault(problem.statement, problem)
    problems = list(by_statement.values())
    stream(split, seed).shuffle(problems)
    return [
        replace(problem, name=f"mini/{split}/{index:04d}") for index, problem in enumerate(problems)
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


def _cell(family: Family, tier: str, split: str, seed: int) -> Iterator[Problem]:
    """Yield problems of one family and tier endlessly, cycling over its compositions."""
    rng = stream(split, seed, family.name, tier)
    for composition in itertools.cycle(shuffled(family, tier, split, rng)):
        for _ in range(_ROUNDS):
            problem = build(draft(rng, family, composition), rng)
            if problem is not None:
                yield problem
                break
