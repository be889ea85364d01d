"""What earlier runs wrote, as their folders keep it (`train.keep_samples`).

A sample is used where all that its reward hangs on is as it was: its problem's tests, its prompt,
which judge it was. Others are left out and counted. How a verdict is paid is this run's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from envs.reward import RewardConfig
from experiments.replay import sample_log
from experiments.replay.sample_log import prompt_digest, samples_of
from experiments.sample import PromptedProblem, Sample


class EarlierRun:
    """The responses that one run's own policies wrote; a source of the replay store."""

    def __init__(self, run: Path, judge_version: str, reward: RewardConfig) -> None:
        self.run, self.judge_version, self.reward = run, judge_version, reward
        self.left_out: Counter[str] = Counter()
        self.digest = sample_log.digest(run)
        self._table = sample_log.read_all(run)
        self._rows = _by_problem(self._table)

    def __str__(self) -> str:
        return f"replay.from_runs=[{self.run}]"

    @property
    def problems(self) -> dict[str, int]:
        """Name of each problem that it has responses to → how many."""
        return {name: len(rows) for name, rows in self._rows.items()}

    def rejection_reason(self, prompt: PromptedProblem) -> str | None:
        """Why none of its responses to a problem can be used; None where some can."""
        rows = self._table.take(self._rows[prompt.problem.name]).to_pylist()
        whys = [mismatch_reason(row, prompt, self.judge_version) for row in rows]
        return None if None in whys else whys[0]

    def samples_for(self, prompt: PromptedProblem) -> list[Sample]:
        """Those to one problem, in the order in which they were written."""
        rows = self._table.take(self._rows.get(prompt.problem.name, np.empty(0, np.int64)))
        whys = [mismatch_reason(row, prompt, self.judge_version) for row in rows.to_pylist()]
        self.left_out += Counter(why for why in whys if why)
        same = rows.filter(pa.array([why is None for why in whys], pa.bool_()))
        samples = samples_of(same, [prompt] * len(same), self.reward)
        return [with_run_origin(sample) for sample in samples]


def with_run_origin(sample: Sample) -> Sample:
    """To the run that reads it, what a run's own policy wrote is another run's."""
    if sample.origin.source != "policy":
        return sample
    return replace(sample, origin=replace(sample.origin, source="run"))


def mismatch_reason(
    row: Mapping[str, object], prompt: PromptedProblem, judge_version: str
) -> str | None:
    """Why a recorded sample says nothing of this problem as it is now; None where it does."""
    if row["problem_hash"] != prompt.problem.hash:
        return "the problem has other tests"
    if row["prompt"] != prompt_digest(prompt):
        return "written to another prompt, or in another tokenizer's tokens"
    if row["judge"] != judge_version:
        return "judged by another judge"
    return None


def _by_problem(table: pa.Table) -> dict[str, np.ndarray]:
    """Problem → the rows that the run's policy wrote for the batch which they were trained on in.

    What the run itself replayed stands there a second time, and what it took from the data set or
    from elsewhere is to be had there.
    """
    own = np.array(table["source"].to_pylist(), object) == "policy"
    steps, written = (np.array(table[name].to_pylist(), object) for name in ("step", "written"))
    rows = np.flatnonzero(own & (steps == written))
    names = np.array(table["problem"].to_pylist(), object)[rows]
    order = np.argsort(names, kind="stable")
    known, starts = np.unique(names[order], return_index=True) if len(rows) else ([], [0])
    return dict(zip(known, np.split(rows[order], starts[1:]), strict=False))
