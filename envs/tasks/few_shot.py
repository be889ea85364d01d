"""Solved examples before every problem of a run, taken out of its train split."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from envs.problem import Problem
from envs.tasks.selection import StoredProblems

if TYPE_CHECKING:
    from envs.tasks.task import Task

LOOKED_AT = 200  # problems from the front of train, whose order depends on their statements alone


def with_examples(task: Task, count: int) -> Task:
    """`count` examples, the shortest with a right program among those looked at.

    The same for every problem and every seed; what is shown is no longer trained on. Raises
    ValueError where train has too few.
    """
    sizes = {
        index: size
        for index, problem in enumerate(task.train[:LOOKED_AT])
        if (size := _size(task, problem)) is not None
    }
    if len(sizes) < count:
        raise ValueError(
            f"task.few_shot={count}: only {len(sizes)} of the first {LOOKED_AT} problems to train "
            "on have a right program"
        )
    chosen = sorted(sorted(sizes, key=sizes.get)[:count])
    rest = [index for index in range(len(task.train)) if index not in chosen]
    train = task.train
    if isinstance(train, StoredProblems):
        kept = StoredProblems([train.entries[index] for index in rest])
    else:
        kept = [train[index] for index in rest]
    return replace(task, train=kept, examples=[train[index] for index in chosen])


def _size(task: Task, problem: Problem) -> int | None:
    """Characters of prompt and shortest answer; None without a right program."""
    if not problem.solutions:
        return None
    return len(task.prompt(problem)) + min(map(len, problem.solutions))
