"""Tasks: where problems come from. A task is one module with `load` and `prompt`."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass

from envs.problem import Problem

NAMES = ("mini",)


@dataclass(frozen=True)
class Task:
    """The problems of a run, by split, and how one is asked."""

    train: list[Problem]
    validation: list[Problem]
    test: list[Problem]
    prompt: Callable[[Problem], str]  # the user message
    response: Callable[[str], str]  # a program → the response that offline data makes of it

    @property
    def data_hash(self) -> str:
        """16 hex digits over all problems: statements, tests and programs."""
        digest = hashlib.sha256()
        for problem in (*self.train, *self.validation, *self.test):
            known = (problem.name, self.prompt(problem), problem.hash)
            digest.update(repr((*known, problem.solutions, problem.incorrect_solutions)).encode())
        return digest.hexdigest()[:16]


def open_task(name: str, train: int, validation: int, test: int) -> Task:
    """The task called `name` with so many problems of each split; ValueError if there is none."""
    if name not in NAMES:
        raise ValueError(f"task.name={name!r}; it is one of {', '.join(NAMES)}")
    module = importlib.import_module(f"envs.tasks.{name}")
    return Task(
        train=module.load("train", train),
        validation=module.load("validation", validation),
        test=module.load("test", test),
        prompt=module.prompt,
        response=module.response,
    )
