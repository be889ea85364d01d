"""What `make tune` says after each run: a line that is whole without a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from experiments.studies.estimate import format_duration

if TYPE_CHECKING:
    from experiments.studies.jobs import Job
    from experiments.studies.tuning.tuner import Tuner


class Progress:
    """Counts the runs of all arms; the time left is by the wall time of those that ended."""

    def __init__(
        self, tuners: Sequence[Tuner], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tuners, self.clock = tuners, clock
        self.begun, self.ended = clock(), 0

    def line(self, tuner: Tuner, job: Job, score: float | None, running: int) -> str:
        """After the end of a run, which the tuner has been told. `running`: of other runs."""
        self.ended += 1
        left = sum(each.runs_left() for each in self.tuners)
        # those that still run are half done on average
        seconds = (self.clock() - self.begun) / (self.ended + running / 2)
        # a running one is among those left
        time_left = format_duration(seconds * (left - running / 2))
        about = f", about {time_left}" if left else ""
        shown = "no score" if score is None else f"score {score:.4f}"
        return f"{shown}, {self._where(tuner, job)}; runs of all arms left: {left}{about}"

    def _where(self, tuner: Tuner, job: Job) -> str:
        if longer := tuner.longer_left():
            return f"longer runs of {tuner.arm} left: {len(longer)}"
        if job not in tuner.again:
            best = max(tuner.finished(), key=lambda each: each.score, default=None)
            leader = f"best {best.score:.4f} (trial {best.trial})" if best else "no best yet"
            return f"{leader}; {tuner.trials_ended()} of {tuner.target} trials of {tuner.arm}"
        ranking = tuner.ranking()
        leader = (
            f"best mean {ranking[0].mean:.4f} (trial {ranking[0].trial})"
            if ranking
            else "no candidate has all its re-scores yet"
        )
        return f"{leader}; re-scores of {tuner.arm} left: {len(tuner.rescores_left())}"
