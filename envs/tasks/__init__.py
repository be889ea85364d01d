"""Tasks: where problems come from, and how a model is asked for a program."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from envs.problem import Problem
from envs.tasks.config import TaskConfig

SPLITS = ("train", "validation", "test")
NAMES = ("mini", "taco", "code_contests", "apps", "paper", "humaneval", "mbpp")


@dataclass(frozen=True)
class Task:
    """The problems of a run, by split, and how one is asked."""

    train: Sequence[Problem]
    validation: Sequence[Problem]
    test: Sequence[Problem]
    prompt: Callable[[Problem], str]  # the user message
    response: Callable[[str], str]  # a program → the response that offline data makes of it
    data_hash: str  # 16 hex digits over all problems, their programs and their prompts
    examples: list[Problem] = field(default_factory=list)  # shown, solved, before every problem
    rows_read: int = 0  # of a public data set
    left_out: Counter[str] = field(default_factory=Counter)  # why rows gave no problem → how many
    decontaminated: list[dict[str, object]] = field(default_factory=list)  # pairs, train and test

    def shots(self) -> list[tuple[str, str]]:
        """What is asked in each example, and its answer: its shortest right program."""
        return [(self.prompt(p), self.response(min(p.solutions, key=len))) for p in self.examples]


def open_task(config: TaskConfig) -> Task:
    """The task that `config` names; ValueError or OSError says which key is wrong."""
    task = _open(config)
    if not config.few_shot:
        return task
    from envs.tasks.few_shot import with_examples

    return with_examples(task, config.few_shot)


def _open(config: TaskConfig) -> Task:
    if config.name == "mini":
        from envs.tasks import mini

        splits = {split: mini.load(split, getattr(config, f"{split}_problems")) for split in SPLITS}
        return Task(
            **splits,
            prompt=mini.prompt,
            response=mini.response,
            data_hash=_data_hash(splits, mini.prompt),
        )
    if config.name in NAMES:
        from envs.tasks import contests

        return contests.open_contests(config)
    raise ValueError(f"task.name={config.name!r}; it is one of {', '.join(NAMES)}")


def _data_hash(splits: dict[str, list[Problem]], prompt: Callable[[Problem], str]) -> str:
    digest = hashlib.sha256()
    for problem in itertools.chain.from_iterable(splits.values()):
        known = (problem.name, prompt(problem), problem.hash)
        digest.update(repr((*known, problem.solutions, problem.incorrect_solutions)).encode())
    return digest.hexdigest()[:16]
