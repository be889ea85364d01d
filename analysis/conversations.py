"""Conversations as counts for each problem, from which every number on turns follows.

A conversation is a prompt, an answer, an observation, a second answer, …. It ends when an answer
passes the public tests or after `turn_limit` answers, and its last answer is submitted. A sample of
a run without turns counts as a conversation of one answer, so that such a run can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.compute import memoize
from analysis.normal_form import normal_form
from analysis.runs import TURN_COLUMNS, Run

COLUMNS = (
    *("step", "problem", "turns", "conversations", "solved", "passed", "false_stops"),
    *("first_passed", "first_passed_right", "mended", "broken", "second", "second_solved"),
    *("other_text", "other_form", "right_tokens", "wrong_tokens"),
)
UNKNOWN = -1  # a count that was not made
FAILED_JUDGE = "INFRA_ERROR"


class Conversation(NamedTuple):
    """The answers of one sample: hidden and public verdict and program of each, and its tokens.

    `public` is empty for a sample of a run without turns; a verdict in it is "" where the problem
    has no public tests.
    """

    hidden: Sequence[str]
    public: Sequence[str]
    programs: Sequence[str]
    tokens: int

    @property
    def judged(self) -> bool:
        return FAILED_JUDGE not in self.hidden and FAILED_JUDGE not in self.public

    def right(self, turns: int) -> bool:
        """Whether the last of the first `turns` answers passes the hidden tests."""
        return self.hidden[min(turns, len(self.hidden)) - 1] == "ACCEPTED"


def has_conversations(run: Run) -> bool:
    """Whether a run was evaluated in conversations that may have several turns."""
    if run.packed:
        return run.turns is not None and bool((run.turns["turns"] > 1).any())
    return TURN_COLUMNS[0] in run.evals


def turn_limit(run: Run) -> int:
    """Return the most answers that a conversation of the run's evaluations may have.

    It is `eval.turns`, or else `task.turns`; without either, the most that one has.
    """
    if run.packed:
        return int(run.turns["turns"].max()) if run.turns is not None else 1
    if not has_conversations(run):
        return 1
    for section in ("eval", "task"):
        settings = run.config.get(section)
        if isinstance(settings, dict) and settings.get("turns"):
            return int(settings["turns"])
    return int(run.evals["turns"].max())


@memoize
def counts_at(run: Run, step: int) -> pd.DataFrame:
    """Return `count_conversations` of one evaluation: before training, or the run's last."""
    if run.packed:
        return run.turns[run.turns["step"] == step] if run.turns is not None else _table([])
    return count_conversations(run.evaluation(step), turn_limit(run))


@memoize
def solved_at(run: Run, step: int) -> pd.DataFrame:
    """Return `count_conversations` of any evaluation, without what takes time."""
    if run.packed:
        return counts_at(run, step)
    return count_conversations(run.evaluation(step), turn_limit(run), whole=False)


def conversations(samples: pd.DataFrame) -> Iterator[tuple[int, str, Conversation]]:
    """Return step, problem and conversation of each sample whose answers all have verdicts."""
    names = ["step", "problem", "verdict", "program", "tokens"]
    turn_names = list(TURN_COLUMNS[1:4]) if TURN_COLUMNS[0] in samples else []
    columns = (samples[name] for name in (*names, *turn_names))
    for step, problem, verdict, program, tokens, *turns in zip(*columns, strict=True):
        hidden, public, programs = turns or ([verdict], [], [program])
        texts = [program or "" for program in programs]
        one = Conversation(list(hidden), list(public), texts, int(tokens))
        if one.judged:
            yield step, problem, one


@dataclass
class _Counts:
    """The counts of one problem in one evaluation of conversations of at most `turns` answers."""

    turns: int
    conversations: int = 0
    solved: list[int] = field(default_factory=list)
    public_known: bool = True
    passed: int = 0
    false_stops: int = 0
    first_passed: int = 0
    first_passed_right: int = 0
    mended: int = 0
    broken: int = 0
    second: int = 0
    second_solved: int = 0
    other_text: int = 0
    other_form: int = 0
    right_tokens: list[int] = field(default_factory=list)
    wrong_tokens: list[int] = field(default_factory=list)

    def add(self, one: Conversation, whole: bool) -> None:
        solved = [one.right(turn + 1) for turn in range(self.turns)]
        first, last = solved[0], solved[-1]
        self.conversations += 1
        self.solved = [a + b for a, b in zip(self.solved or [0] * self.turns, solved, strict=True)]
        self.mended += last and not first
        self.broken += first and not last
        passed = one.public[-1:] == ["ACCEPTED"]
        self.public_known &= len(one.public) > 0 and all(one.public)
        self.passed += passed
        self.false_stops += passed and not last
        first_passed = one.public[:1] == ["ACCEPTED"]
        self.first_passed += first_passed
        self.first_passed_right += first_passed and first
        if len(one.programs) > 1:
            self.second += 1
            self.second_solved += last
            self.other_text += one.programs[0] != one.programs[1]
            if whole:
                self.other_form += _form(one.programs[0]) != _form(one.programs[1])
        if whole:
            (self.right_tokens if last else self.wrong_tokens).append(one.tokens)

    def row(self, whole: bool) -> tuple[int | str, ...]:
        """Return the columns after step and problem."""
        known = self.public_known
        return (
            self.turns,
            self.conversations,
            " ".join(map(str, self.solved)),
            self.passed if known else UNKNOWN,
            self.false_stops if known else UNKNOWN,
            self.first_passed if known else UNKNOWN,
            self.first_passed_right if known else UNKNOWN,
            self.mended,
            self.broken,
            self.second,
            self.second_solved,
            self.other_text,
            self.other_form if whole else UNKNOWN,
            " ".join(map(str, self.right_tokens)),
            " ".join(map(str, self.wrong_tokens)),
        )


def _form(program: str) -> str:
    return normal_form(program) or program.strip()


def count_conversations(samples: pd.DataFrame, turns: int, whole: bool = True) -> pd.DataFrame:
    """Return COLUMNS of evaluation samples: a row for each step and problem.

    Samples with an answer on which the judge failed (INFRA_ERROR) are left out.

    - turns: the most answers of a conversation; conversations: their number.
    - solved: of how many the last of the first 1, 2, … `turns` answers passes the hidden tests.
    - passed: of how many the last answer passes the public tests; false_stops: those of them that
      fail the hidden tests; first_passed, first_passed_right: of how many the first answer passes
      the public tests, or both. These are UNKNOWN for single samples, and without public tests.
    - mended, broken: the first answer fails and the last one is right; the other way round.
    - second, second_solved: with a second answer, and those of them that are solved; other_text,
      other_form: its program is not the first's, as text and in normal form (a program that cannot
      be parsed is its own form).
    - right_tokens, wrong_tokens: generated tokens of each conversation, by its last answer.

    Without `whole`, other_form is UNKNOWN and the tokens are empty.
    """
    cells: dict[tuple[int, str], _Counts] = {}
    for step, problem, one in conversations(samples):
        cells.setdefault((step, problem), _Counts(turns)).add(one, whole)
    return _table([(*key, *cell.row(whole)) for key, cell in cells.items()])


def _table(rows: Sequence[tuple[int | str, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(COLUMNS))


def numbers(texts: pd.Series) -> list[list[int]]:
    """Return the lists of numbers of a column such as "3 4 4"."""
    return [[int(number) for number in text.split()] for text in texts]


def solved_within(right: Sequence[int], wrong: Sequence[int], budget: int) -> float:
    """Return the chance that one of a problem's conversations solves it within a token budget.

    Conversations are drawn one after the other until `budget` generated tokens are spent, and each
    one that ends within it submits its last answer. `right` and `wrong` have the tokens of the
    sampled conversations, by that answer. The mean over all orders of them is exact: the first
    right one, of t tokens, comes after a set of j wrong ones with chance j! (n − j − 1)! / n!, and
    counts if t and the set's tokens are at most the budget. Sets are counted by size and tokens.

    It is unbiased if the budget ends before the conversations do. Otherwise it is that of all of
    them, a lower bound. Raises ValueError without a conversation.
    """
    n = len(right) + len(wrong)
    if not n:
        raise ValueError("no conversation")
    if not right or min(right) > budget:
        return 0.0
    sets = _sets_within(wrong, budget)
    spare = budget - np.asarray(right)
    within = sets[:, spare[spare >= 0]].sum(axis=1)  # (size,)
    chance = [1 / (n * comb(n - 1, size)) for size in range(len(sets))]
    return float(np.dot(within, chance))


def _sets_within(tokens: Sequence[int], budget: int) -> np.ndarray:
    """Return the number of sets by size j and most tokens s, as (j, s); s from 0 to the budget."""
    kept = [one for one in tokens if one <= budget]
    fits = int((np.cumsum(sorted(kept)) <= budget).sum())  # the most that fit together
    sets = np.zeros((fits + 1, budget + 1))
    sets[0, 0] = 1.0
    for one in kept:
        sets[1:, one:] += sets[:-1, : budget + 1 - one].copy()
    return sets.cumsum(axis=1)
