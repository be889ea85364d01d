"""How long a study will take: by the runs of it that have finished, else by a few timed steps."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.studies.jobs import End, Job
from experiments.studies.processes import last_words, start

# the first step and the last do more than others
FEW = ("steps=4", "eval.every=0", "train.checkpoint_every=0", "eval.kl_samples=0")


@dataclass
class Clock:
    """Seconds of a step of each arm, and of an evaluation, as far as they are known."""

    steps: dict[str, list[float]] = field(default_factory=dict)  # arm → of its runs
    evaluations: list[float] = field(default_factory=list)

    def learn(self, arm: str, folder: Path, config: RunConfig) -> None:
        """What a finished run took, the evaluations apart."""
        import pandas as pd

        rows = pd.read_parquet(folder / "metrics.parquet")
        if not len(rows):
            return
        last = rows.iloc[-1]
        total, evaluated = float(last["time/total_s"]), float(last["time/evaluate_s"])
        here = 1 - float(last.get("time/charged_s", 0.0)) / total  # the rest was another run's
        self.steps.setdefault(arm, []).append((total - evaluated) * here / len(rows))
        # the last one is made after the last row
        self.evaluations.append(evaluated * here / max(evaluations(config) - 1, 1))

    def seconds(self, job: Job, config: RunConfig, begun: End) -> float:
        """What is left of a job; of an arm that never ran, as much as the others' mean."""
        means = [statistics.fmean(found) for found in self.steps.values()]
        step = statistics.fmean(self.steps.get(job.arm) or means)
        whole = config.steps * step + evaluations(config) * statistics.fmean(self.evaluations)
        return whole * (1 - _done(begun, config))


def evaluations(config: RunConfig) -> int:
    """How many a run makes, the one before training included."""
    every, steps = config.eval.every, config.steps
    between = (steps - 1) // every if every and steps else 0
    return 1 + between + (steps > 0)


def _done(begun: End, config: RunConfig) -> float:
    """The share of a run that lies behind its last checkpoint."""
    if begun.folder is None or not config.steps:
        return 0.0
    known = json.loads((begun.folder / "run.json").read_text())["checkpoints"]
    return min(max(known.values(), default=0) / config.steps, 1.0)


def timed(jobs: dict[Job, tuple[Sequence[str], RunConfig]], workers: int, clock: Clock) -> None:
    """Take the time of a few steps of each job, so many at once, in runs that are thrown away.

    The first one evaluates as the study does, and its evaluation of the base is kept for the runs
    to come, as any is; the others take a sample a problem. Raises UserError where one fails.
    """
    waiting, running = list(jobs), {}
    full = waiting[0]
    folders = {job: _folder(job, config) for job, (_, config) in jobs.items()}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                shutil.rmtree(folders[job], ignore_errors=True)
                given = [*jobs[job][0], f"seed={job.seed}", f"name={folders[job].name}", *FEW]
                given += [] if job is full else ["eval.samples=1", "eval.k=[1]"]
                running[job] = start(given, folders[job] / "log")
            for job in [job for job, process in running.items() if process.poll() is not None]:
                if running.pop(job).returncode:
                    raise UserError(f"{job.label}: {last_words(folders[job] / 'log')}")
                step, evaluation = _times(next(folders[job].glob("*/metrics.parquet")))
                clock.steps[job.arm] = [step]
                clock.evaluations += [evaluation] if job is full else []
            time.sleep(0.1)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _folder(job: Job, config: RunConfig) -> Path:
    return Path(config.output_dir) / f"{config.name}-timing-{job.arm}"


def _times(file: Path) -> tuple[float, float]:
    """Seconds of a step, without the first and the last, and of the evaluation before training."""
    import pandas as pd

    rows = pd.read_parquet(file)
    between = rows["time/total_s"].iloc[-2] - rows["time/total_s"].iloc[0]
    return float(between) / (len(rows) - 2), float(rows["time/evaluate_s"].iloc[0])


def whole_time(jobs: dict[Job, float], workers: int) -> float:
    """Seconds until all are done, so many at a time; no chain of them takes less than its sum."""
    if not jobs:
        return 0.0

    def chain(job: Job) -> float:
        return jobs.get(job, 0.0) + max((chain(needed) for needed in job.needs), default=0.0)

    return max(sum(jobs.values()) / workers, max(map(chain, jobs)))


def in_words(seconds: float) -> str:
    """Hours and minutes, as one would say them."""
    minutes = max(round(seconds / 60), 1)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02} min" if hours else f"{minutes} min"
