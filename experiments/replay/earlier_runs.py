"""Samples that earlier runs logged in their folders (`train.keep_samples`).

A sample is used if everything that its reward depends on is unchanged: the problem's tests, the
prompt and the judge. Other samples are left out and counted. Rewards follow this run's settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from envs.reward import RewardConfig
from experiments.replay import sample_log
from experiments.replay.sample_log import prompt_digest, samples_of
from experiments.sample import PromptedProblem, Sample


class EarlierRun:
    """Responses that one run's own policies generated; a source of the replay buffer."""

    def __init__(self, run: Path, judge_version: str, reward: RewardConfig) -> None:
        self.run, self.judge_version, self.reward = run, judge_version, reward
        self.left_out: Counter[str] = Counter()
        self.digest = sample_log.digest(run)
        self._table = sample_log.read_all(run)
        self._rows = _rows_by_problem(self._table)

    def __str__(self) -> str:
        return f"replay.from_runs=[{self.run}]"

    @property
    def problems(self) -> dict[str, int]:
        """The number of responses to each problem, by name."""
        return {name: len(rows) for name, rows in self._rows.items()}

    def rejection_reason(self, prompt: PromptedProblem) -> str | None:
        """Return why none of the responses to a problem can be used; None if some can."""
        rows = self._table.take(self._rows[prompt.problem.name]).to_pylist()
        reasons = [mismatch_reason(row, prompt, self.judge_version) for row in rows]
        return None if None in reasons else reasons[0]

    def samples_for(self, prompt: PromptedProblem) -> list[Sample]:
        """Return the samples of one problem, in the order in which they were generated."""
        rows = self._table.take(self._rows.get(prompt.problem.name, np.empty(0, np.int64)))
        reasons = [mismatch_reason(row, prompt, self.judge_version) for row in rows.to_pylist()]
        self.left_out += Counter(reason for reason in reasons if reason)
        usable = rows.filter(pa.array([reason is None for reason in reasons], pa.bool_()))
        samples = samples_of(usable, [prompt] * len(usable), self.reward)
        return [with_run_origin(sample) for sample in samples]


def with_run_origin(sample: Sample) -> Sample:
    """Return the sample with another run's policy as its origin, if a policy generated it."""
    if sample.origin.source != "policy":
        return sample
    return replace(sample, origin=replace(sample.origin, source="run"))


def mismatch_reason(
    row: Mapping[str, Any], prompt: PromptedProblem, judge_version: str
) -> str | None:
    """Return why a logged sample does not apply to this problem; None if it does."""
    if row["problem_hash"] != prompt.problem.hash:
        return "the problem has other tests"
    if row["prompt"] != prompt_digest(prompt):
        return "generated for another prompt, or with another tokenizer"
    if row["judge"] != judge_version:
        return "judged by another judge version"
    return None


def _rows_by_problem(table: pa.Table) -> dict[str, np.ndarray]:
    """Return each problem's row numbers: rows generated for the batch that trained on them.

    Replayed samples would count twice, and samples from the data set or from other runs are
    available at their origin.
    """
    own = np.array(table["source"].to_pylist(), object) == "policy"
    steps, generated_for = (np.array(table[key].to_pylist(), object) for key in ("step", "written"))
    rows = np.flatnonzero(own & (steps == generated_for))
    if not len(rows):
        return {}
    names = np.array(table["problem"].to_pylist())[rows]
    order = np.argsort(names, kind="stable")
    problems, starts = np.unique(names[order], return_index=True)
    return dict(zip(problems.tolist(), np.split(rows[order], starts[1:]), strict=True))
