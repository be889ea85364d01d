"""Tasks: where problems come from, and how a model is asked for a program."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from envs.problem import Problem
from envs.tasks.config import TaskConfig

NAMES = ("mini", "taco", "code_contests", "apps", "paper")


@dataclass(frozen=True)
class Task:
    """The problems of a run, by split, and how one is asked."""

    train: list[Problem]
    validation: list[Problem]
    test: list[Problem]
    prompt: Callable[[Problem], str]  # the user message
    response: Callable[[str], str]  # a program → the response that offline data makes of it
    rows_read: int = 0  # of a public data set
    left_out: Counter[str] = field(default_factory=Counter)  # why rows gave no problem → how many
    decontaminated: list[dict[str, object]] = field(default_factory=list)  # pairs, train and test

    @property
    def data_hash(self) -> str:
        """16 hex digits over all problems: statements, tests and programs."""
        digest = hashlib.sha256()
        for problem in (*self.train, *self.validation, *self.test):
            known = (problem.name, self.prompt(problem), problem.hash)
            digest.update(repr((*known, problem.solutions, problem.incorrect_solutions)).encode())
        return digest.hexdigest()[:16]


def open_task(config: TaskConfig) -> Task:
    """The task that `config` names; ValueError or OSError says which key is wrong."""
    if config.name == "mini":
        from envs.tasks import mini

        return Task(
            train=mini.load("train", config.train_problems),
            validation=mini.load("validation", config.validation_problems),
            test=mini.load("test", config.test_problems),
            prompt=mini.prompt,
            response=mini.response,
        )
    if config.name in NAMES:
        from envs.tasks import contests

        return contests.open_contests(config)
    raise ValueError(f"task.name={config.name!r}; it is one of {', '.join(NAMES)}")
