"""Runs a study's jobs, so many at a time, in the order in which they stand, as they get ready.

What has ended is known from the run folders alone: started again after whatever end, the runner
finds finished runs, goes on with others, and begins the rest.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.run_dir.atomic_files import lock
from experiments.studies import processes
from experiments.studies.estimate import Clock, in_words, whole_time
from experiments.studies.jobs import (
    End,
    Job,
    config_with_seed,
    end_of,
    full_overrides,
    is_lost,
    is_ready,
)

PAUSE_S = 0.3


class Runner:
    """The state of a study: what has ended, what is going on, what waits."""

    def __init__(
        self,
        jobs: Sequence[Job],
        workers: int,
        say: Callable[[str], None],
        after: Callable[[Job, End], None] = lambda job, end: None,
    ) -> None:
        """after: told of each job that ends while this runs; it may add jobs."""
        self.jobs, self.workers, self.say, self.after = list(jobs), workers, say, after
        self.ended: dict[Job, End] = {}
        self.found: dict[Job, End] = {}  # where each of the others stood when it was last looked at
        self.running: dict[Job, subprocess.Popen] = {}
        self.clock = Clock()

    def look(self) -> None:
        """Find what has finished before, and learn from it how long a run takes."""
        for job in self.jobs:
            if not is_ready(job, self.ended) or is_lost(job, self.ended):
                continue
            found = end_of(self.config(job))
            if found.status == "finished":
                self._finished(job, found)
            else:
                self.found[job] = found

    def overrides(self, job: Job) -> tuple[str, ...]:
        """What the job's command says, but for its seed; in so far as it is known yet."""
        known = is_ready(job, self.ended) and not is_lost(job, self.ended)
        return full_overrides(job, self.ended) if known else job.overrides

    def config(self, job: Job) -> RunConfig:
        """The job's configuration, in so far as it is known yet."""
        return config_with_seed(self.overrides(job), job.seed)

    def left(self) -> list[Job]:
        """What has not ended."""
        return [job for job in self.jobs if job not in self.ended]

    def seconds_left(self) -> float:
        """Until all have ended; runs that go on are taken to be half way, unless they say more."""
        each = {
            job: self.clock.seconds(job, self.config(job), self.found.get(job, End("not begun")))
            for job in self.left()
        }
        each |= {job: each[job] / 2 for job in self.running}
        return whole_time(each, self.workers)

    def run(self) -> None:
        """Until nothing is left. An interrupt ends what is going on, each with a checkpoint."""
        try:
            while self.left():
                self._reap()
                self._fill()
                time.sleep(PAUSE_S)
        except KeyboardInterrupt:
            self.say(
                f"ending {len(self.running)} runs, each with a checkpoint; Ctrl-C hurries them"
            )
            processes.end(list(self.running.values()))
            raise
        except BaseException:
            processes.end(list(self.running.values()))
            raise

    def _fill(self) -> None:
        for job in self.jobs:
            if len(self.running) == self.workers:
                return
            if job in self.ended or job in self.running or not is_ready(job, self.ended):
                continue
            if is_lost(job, self.ended):
                self.ended[job] = End("not run", None, f"{_names(job)} failed")
                self.say(f"{job.label} not run: {self.ended[job].error}")
            elif not self._is_held(job):
                self._start(job)

    def _is_held(self, job: Job) -> bool:
        """Whether another process still has the run, e.g. one that is just ending."""
        folder = end_of(self.config(job)).folder
        if folder is None:
            return False
        try:
            os.close(lock(folder))
        except UserError:
            if self.found.get(job, End("")).status != "held":
                self.say(f"{job.label} waits: {folder} still belongs to another process")
                self.found[job] = End("held", folder)
            return True
        return False

    def _start(self, job: Job) -> None:
        overrides = [*self.overrides(job), f"seed={job.seed}"]
        self.running[job] = processes.start(overrides, self.log(job))
        self.say(f"{job.label} begins")

    def log(self, job: Job) -> Path:
        """What the job's processes say."""
        config = self.config(job)
        return Path(config.output_dir) / config.name / "logs" / f"{job.label}.log"

    def _reap(self) -> None:
        for job, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[job]
            found = end_of(self.config(job))
            if found.status == "finished":
                self._finished(job, found)
                behind = f"{len(self.ended)} of {len(self.jobs)}"
                self.say(f"{job.label} done, {behind}; {in_words(self.seconds_left())} left")
            else:
                error = found.error or processes.why(process, self.log(job))
                self.ended[job] = End("failed", found.folder, error)
                self.say(f"{job.label} failed: {error}")
            self.after(job, self.ended[job])

    def _finished(self, job: Job, found: End) -> None:
        self.ended[job] = found
        self.clock.learn(job.arm, found.folder, self.config(job))


def _names(job: Job) -> str:
    return ", ".join(needed.label for needed in job.needs)
