"""Conversations as counts for each problem, from which every number on turns follows.

A conversation is a prompt, an answer, an observation, a second answer, …. It ends when an answer
passes the public tests or after `turn_limit` answers, and its last answer is submitted. A sample of
a run without turns counts as a conversation of one answer, so that such a run can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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
        return (
            run.turns[run.turns["step"] == step]
            if run.turns is not None
            else pd.DataFrame(columns=list(COLUMNS))
        )
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
    sums: dict[tuple[int, str], Counter[str]] = {}
    lists: dict[tuple[int, str], dict[str, list[int]]] = {}
    unknown: dict[tuple[int, str], list[str]] = {}  # counts that were not made
    for step, problem, one in conversations(samples):
        key = step, problem
        solved = [one.right(turn + 1) for turn in range(turns)]
        first, last = solved[0], solved[-1]
        passed, first_passed = (part == ["ACCEPTED"] for part in (one.public[-1:], one.public[:1]))
        two = one.programs[:2] if len(one.programs) > 1 else None
        sums.setdefault(key, Counter(conversations=0)).update(
            conversations=1,
            passed=passed,
            false_stops=passed and not last,
            first_passed=first_passed,
            first_passed_right=first_passed and first,
            mended=last and not first,
            broken=first and not last,
            second=two is not None,
            second_solved=two is not None and last,
            other_text=two is not None and two[0] != two[1],
            other_form=whole and two is not None and _form(two[0]) != _form(two[1]),
        )
        names = ("solved", "right_tokens", "wrong_tokens")
        of_cell = lists.setdefault(key, {name: [] for name in names})
        before = of_cell["solved"] or [0] * turns
        of_cell["solved"] = [a + b for a, b in zip(before, solved, strict=True)]
        if whole:
            of_cell["right_tokens" if last else "wrong_tokens"].append(one.tokens)
        missing = [] if whole else ["other_form"]
        if not one.public or not all(one.public):
            missing += ["passed", "false_stops", "first_passed", "first_passed_right"]
        unknown.setdefault(key, []).extend(missing)
    rows = [
        {"step": key[0], "problem": key[1], "turns": turns}
        | dict(sums[key])
        | {name: " ".join(map(str, found)) for name, found in lists[key].items()}
        | dict.fromkeys(unknown[key], UNKNOWN)
        for key in sums
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _form(program: str) -> str:
    return normal_form(program) or program.strip()


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
