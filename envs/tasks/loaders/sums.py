"""Sums of two numbers: the smallest task without programs, for trying the training loop."""

from __future__ import annotations

import itertools
import random
from typing import Any

from envs.problem import Problem, Test
from envs.tasks.config import TaskConfig
from envs.tasks.task import SPLITS, Task, data_hash

LEVELS = {"easy": 5, "medium": 10, "hard": 50}  # difficulty → bound on both numbers
_SHARES = {"train": 0.6, "tune": 0.1, "choose": 0.15, "test": 0.15}


def make(config: TaskConfig) -> Task:
    """Build the task of conf/task/sums.yaml."""
    splits: dict[str, Any] = {
        split: load(split, getattr(config, f"{split}_problems")) for split in SPLITS
    }
    return Task(**splits, prompt=prompt, response=str, data_hash=data_hash(splits, prompt))


def load(split: str, size: int) -> list[Problem]:
    """Return `size` problems of a split (or all), easy ones first. No two splits share a sum."""
    sums = [item for level in LEVELS for item in _level_sums(level, split)][:size]
    return [_problem(f"sums/{split}/{i:04d}", *item) for i, item in enumerate(sums)]


def prompt(problem: Problem) -> str:
    """Return the user message."""
    return problem.statement


def _level_sums(level: str, split: str) -> list[tuple[str, int, int]]:
    """Return (level, a, b) of a level's pairs in a split, in a fixed random order."""
    easier = max((limit for limit in LEVELS.values() if limit < LEVELS[level]), default=0)
    numbers = range(LEVELS[level])
    pairs = [pair for pair in itertools.product(numbers, numbers) if max(pair) >= easier]
    random.Random(f"sums/{level}").shuffle(pairs)
    ends = {
        name: round(len(pairs) * share)
        for name, share in zip(_SHARES, itertools.accumulate(_SHARES.values()), strict=True)
    }
    starts = dict(zip(_SHARES, [0, *ends.values()], strict=False))
    return [(level, *pair) for pair in pairs[starts[split] : ends[split]]]


def _problem(name: str, level: str, a: int, b: int) -> Problem:
    test = Test("", str(a + b))
    wrong = (str(a + b + 1), str(a + b - 1), str(abs(a - b)))
    return Problem(
        name,
        f"What is {a} + {b}?",
        (),
        (test,),
        difficulty=level,
        solutions=(test.output,),
        incorrect_solutions=tuple(text for text in wrong if text != test.output),
    )
