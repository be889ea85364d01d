"""A task: problems by split, and how a model is prompted."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from envs.problem import Problem

SPLITS = ("train", "tune", "choose", "test")


@dataclass(frozen=True)
class Task:
    """The problems of a run by split, and the format of prompts and responses.

    Hyperparameters are tuned on `tune`. Defaults and designs are chosen on `choose`. `test` is for
    the final evaluation of a study.
    """

    train: Sequence[Problem]
    tune: Sequence[Problem]
    choose: Sequence[Problem]
    test: Sequence[Problem]
    prompt: Callable[[Problem], str]  # the user message
    response: Callable[[str], str]  # turns an offline program into a response
    data_hash: str  # 16 hex digits over all problems, their programs and their prompts
    prompt_digest: str = ""  # of the template; "" if code builds the prompt
    examples: list[Problem] = field(default_factory=list)  # few-shot examples before every prompt
    rows_read: int = 0  # of a data set
    left_out: Counter[str] = field(default_factory=Counter)  # why rows gave no problem → how many
    # of reasons that lie in the row: the first such row
    first_left_out: dict[str, str] = field(default_factory=dict)
    # share of each split that a hash of the statements divides; empty: the data set's own splits
    split_shares: dict[str, float] = field(default_factory=dict)
    # near-duplicates: split and problem, other_split and other_problem, similarity, containment
    decontaminated: list[dict[str, object]] = field(default_factory=list)

    def splits(self) -> dict[str, Sequence[Problem]]:
        """Return the problems by the name of their split."""
        return {split: getattr(self, split) for split in SPLITS}

    def shots(self) -> list[tuple[str, str]]:
        """Return (prompt, response) of each example; the response is its shortest right program."""
        return [(self.prompt(p), self.response(min(p.solutions, key=len))) for p in self.examples]


def data_hash(splits: Mapping[str, Sequence[Problem]], prompt: Callable[[Problem], str]) -> str:
    """Return 16 hex digits over generated problems, their programs and their prompts."""
    digest = hashlib.sha256()
    for problem in itertools.chain.from_iterable(splits.values()):
        content = (problem.name, prompt(problem), problem.hash)
        digest.update(repr((*content, problem.solutions, problem.incorrect_solutions)).encode())
    return digest.hexdigest()[:16]
