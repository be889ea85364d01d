"""The trials of an arm that run again on fresh seeds, and which of them wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ATTEMPTS = 2  # runs of a longer run or re-score that fails, before its trial is left out


@dataclass(frozen=True)
class Candidate:
    """A finished trial, with its scores on fresh seeds (None: failed or not run yet)."""

    trial: int
    score: float  # of the trial: it made it a candidate, and decides nothing more
    values: Mapping[str, Any]
    rescores: Mapping[int, float | None]  # by seed
    is_left_out: bool = False  # a longer run or a re-score failed in every attempt
    longer: float | None = None  # score of its longer run on the trials' seed

    @property
    def is_complete(self) -> bool:
        """Whether every fresh seed has a score."""
        return all(score is not None for score in self.rescores.values())

    @property
    def mean(self) -> float:
        """Mean over the fresh seeds."""
        scores = self._scores()
        return sum(scores) / len(scores)

    @property
    def standard_error(self) -> float:
        """Standard error of that mean."""
        scores, mean = self._scores(), self.mean
        squares = sum((score - mean) ** 2 for score in scores)
        return math.sqrt(squares / (len(scores) - 1) / len(scores))

    def ties_with(self, other: Candidate) -> bool:
        """Whether the means differ by one standard error of their difference, or by less."""
        error = math.hypot(self.standard_error, other.standard_error)
        return abs(self.mean - other.mean) <= error

    def _scores(self) -> list[float]:
        return [score for score in self.rescores.values() if score is not None]


def first_of_rounds(
    finished: Sequence[Candidate], targets: Sequence[int], number: int
) -> list[list[Candidate]]:
    """For every round its `number` best trials by their own scores, best first.

    `targets`: the number of trials of each round, earlier ones included. A trial that is left out
    makes room for the next one. The earlier trial comes first among equals.
    """
    order = sorted(finished, key=lambda each: (-each.score, each.trial))
    able = [each for each in order if not each.is_left_out]
    return [[each for each in able if each.trial < target][:number] for target in targets]


def best_of_rounds(
    finished: Sequence[Candidate], targets: Sequence[int], best: int, longer: int = 0
) -> list[Candidate]:
    """The trials to run again on fresh seeds: of every round the `best`, in order of their scores.

    With `longer`: of every round's `longer` best trials those with the best longer runs, once all
    of these have ended.
    """
    rounds = first_of_rounds(finished, targets, longer or best)
    if longer:
        complete = [pool for pool in rounds if all(each.longer is not None for each in pool)]
        rounds = [sorted(pool, key=_best_longer_first)[:best] for pool in complete]
    chosen = {each.trial: each for pool in rounds for each in pool}
    return sorted(chosen.values(), key=lambda each: (-each.score, each.trial))


def _best_longer_first(candidate: Candidate) -> tuple[float, int]:
    assert candidate.longer is not None
    return -candidate.longer, candidate.trial
