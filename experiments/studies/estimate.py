"""Time that a study will take, from its finished runs or a few timed steps."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.config.schema import RunConfig
from experiments.studies.jobs import End, Job

TIMED_STEPS = 4  # of a run that is only timed
TIMED_ARMS = 8  # at most, before a study without a finished run
TIMED_S = 60  # after which timing ends, with what has been timed by then
WORTH = 0.2  # share of a study's own work that timing may add to it


@dataclass
class Clock:
    """Measured seconds of a step of each arm, and of an evaluation."""

    steps: dict[str, list[float]] = field(default_factory=dict)  # arm → of each run
    evaluations: list[float] = field(default_factory=list)

    def learn(self, arm: str, folder: Path, config: RunConfig) -> None:
        """Add the times of a finished run."""
        import pandas as pd

        rows = pd.read_parquet(folder / "metrics.parquet")
        if not len(rows):
            return
        last = rows.iloc[-1]
        total, evaluated = float(last["time/total_s"]), float(last["time/evaluate_s"])
        own = 1 - float(last.get("time/charged_s", 0.0)) / total  # the rest: another run
        self.steps.setdefault(arm, []).append((total - evaluated) * own / len(rows))
        # those at the end come after the last row
        self.evaluations.append(evaluated * own / max(evaluations(config) - _at_an_end(config), 1))

    def seconds(self, job: Job, config: RunConfig, state: End) -> float:
        """Remaining time of a job. An arm that never ran takes the others' mean."""
        means = [statistics.fmean(seconds) for seconds in self.steps.values()]
        step = statistics.fmean(self.steps.get(job.arm) or means)
        whole = config.steps * step + evaluations(config) * statistics.fmean(self.evaluations)
        return whole * (1 - _done(state, config))


def evaluations(config: RunConfig) -> int:
    """Number of evaluations of a run, before training and at further temperatures included."""
    every, steps = config.eval.every, config.steps
    between = (steps - 1) // every if every and steps else 0
    return between + _at_an_end(config) * (1 + (steps > 0))


def _at_an_end(config: RunConfig) -> int:
    """Number of evaluations at the start, and at the end: one for each temperature."""
    return 1 + len(config.eval.further_temperatures)


def arms_to_time(left: Sequence[RunConfig]) -> int:
    """Number of arms that may be timed before these runs; 0: they are too short for it.

    A timed run has TIMED_STEPS steps and two evaluations of one sample, the first run one more.
    """
    steps = sum(config.steps for config in left)
    samples = sum(evaluations(config) * config.eval.samples for config in left)
    return int(min(TIMED_ARMS, WORTH * steps / TIMED_STEPS, (WORTH * samples - 1) / 2))


def _done(state: End, config: RunConfig) -> float:
    """Share of a run before its last checkpoint."""
    if state.folder is None or not config.steps:
        return 0.0
    checkpoints = json.loads((state.folder / "run.json").read_text())["checkpoints"]
    return min(max(checkpoints.values(), default=0) / config.steps, 1.0)


def whole_time(seconds: Mapping[Job, float], workers: int) -> float:
    """Time until all jobs are done. No chain of dependent jobs takes less than its sum."""
    if not seconds:
        return 0.0

    def chain(job: Job) -> float:
        return seconds.get(job, 0.0) + max((chain(needed) for needed in job.needs), default=0.0)

    return max(sum(seconds.values()) / workers, max(map(chain, seconds)))


def format_duration(seconds: float) -> str:
    """Hours and minutes in words."""
    minutes = max(round(seconds / 60), 1)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02} min" if hours else f"{minutes} min"
