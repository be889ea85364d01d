"""What a task is: problems by split, and how a model is asked for an answer."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from envs.problem import Problem

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Task:
    """The problems of a run, by split, and how one is asked."""

    train: Sequence[Problem]
    validation: Sequence[Problem]
    test: Sequence[Problem]
    prompt: Callable[[Problem], str]  # the user message
    response: Callable[[str], str]  # a program → the response that offline data makes of it
    data_hash: str  # 16 hex digits over all problems, their programs and their prompts
    prompt_digest: str = ""  # of the template; a prompt that is made from code alone has none
    examples: list[Problem] = field(default_factory=list)  # shown, solved, before every problem
    rows_read: int = 0  # of a public data set
    left_out: Counter[str] = field(default_factory=Counter)  # why rows gave no problem → how many
    decontaminated: list[dict[str, object]] = field(default_factory=list)  # pairs, train and test

    def shots(self) -> list[tuple[str, str]]:
        """What is asked in each example, and its answer: its shortest right program."""
        return [(self.prompt(p), self.response(min(p.solutions, key=len))) for p in self.examples]


def data_hash(splits: dict[str, list[Problem]], prompt: Callable[[Problem], str]) -> str:
    """16 hex digits over problems that are made, their programs and their prompts."""
    digest = hashlib.sha256()
    for problem in itertools.chain.from_iterable(splits.values()):
        known = (problem.name, prompt(problem), problem.hash)
        digest.update(repr((*known, problem.solutions, problem.incorrect_solutions)).encode())
    return digest.hexdigest()[:16]
