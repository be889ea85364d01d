"""The runs that a study stands for, which of them wait for others, and how far each has come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from experiments.config.composition import config_of
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.studies.study import PARENTS, Study


@dataclass(frozen=True)
class Job:
    """One run. Its configuration may wait for what others bring."""

    arm: str
    seed: int
    overrides: tuple[str, ...]  # but for the seed
    weights_of: Job | None = None
    rollouts_of: Job | None = None
    replay_of: Job | None = None
    chosen_from: tuple[Job, ...] = ()  # short runs: the last override of the best one is taken
    trial: str = ""  # what names a short run, which is no part of the comparison

    @property
    def label(self) -> str:
        """Another one for each job of a study, good as a file's name."""
        return f"{self.arm}-s{self.seed}" + (f"-{self.trial}" if self.trial else "")

    @property
    def needs(self) -> tuple[Job, ...]:
        """The jobs that end before this one begins."""
        parents = (getattr(self, key) for key in PARENTS)
        return (*filter(None, parents), *self.chosen_from)


@dataclass
class End:
    """How a job's run ended, or where it stands."""

    status: str  # finished | failed | interrupted | running | not begun
    folder: Path | None = None
    error: str | None = None
    score: float = float("-inf")  # pass@k of the smallest k at the last evaluation


def jobs_of(
    study: Study, seeds: Sequence[int], arms: Sequence[str], given: Sequence[str]
) -> list[Job]:
    """All runs, seed by seed, so that each seed is a whole comparison; what others need is first.

    `given`: overrides of every run. Raises UserError where a configuration is wrong, with its arm.
    """
    found: dict[Job, None] = {}
    for seed in seeds:
        for arm in arms:
            job = _job(study, arm, seed, tuple(given))
            found |= dict.fromkeys((*_below(job), job))
    for job in found:
        if job.trial and job.arm != arms[0]:  # the others' differ from their arm's as these do
            continue
        try:
            _composed(job.overrides)
        except UserError as error:
            raise UserError(f"arm {job.arm}: {error}") from error
    return list(found)


def _below(job: Job) -> Iterator[Job]:
    for needed in job.needs:
        yield from (*_below(needed), needed)


def _job(study: Study, name: str, seed: int, given: tuple[str, ...]) -> Job:
    arm = study.arms[name]
    overrides = (f"name={study.name}", *study.overrides, *arm.overrides, *given)
    parents = {key: _job(study, of, seed, given) for key, of in arm.parents.items()}
    if arm.weights_of:
        model = _composed(overrides).model.name
        overrides = (*overrides, f"model.name={model}-after-{arm.weights_of}")
    if arm.rollouts_of:
        overrides = (*overrides, "replay.frozen=false")  # until the batches are there
    if arm.replay_of:
        overrides = (*overrides, "replay.own=true")  # likewise
    if not study.choice:
        return Job(name, seed, overrides, **parents)
    c = study.choice
    short = (*overrides, f"name={study.name}-choice", *c.overrides)
    tried = (Job(name, c.seed, (*short, f"{c.key}={v:g}"), trial=f"{v:g}") for v in c.values)
    return Job(name, seed, overrides, chosen_from=tuple(tried))


def full_overrides(job: Job, ended: dict[Job, End]) -> tuple[str, ...]:
    """All overrides of a job but its seed, where what it needs has ended well."""
    more = []
    if job.weights_of:
        path = ended[job.weights_of].folder / "checkpoints" / "final"
        more.append(f"model.path={_quoted(path)}")
    if job.rollouts_of:
        more.append(f"replay.from_runs=[{_quoted(ended[job.rollouts_of].folder)}]")
        more.append("replay.frozen=true")
    if job.replay_of:
        more.append(f"replay.from_runs=[{_quoted(ended[job.replay_of].folder)}]")
        more.append("replay.own=false")
    if job.chosen_from:
        finished = [one for one in job.chosen_from if ended[one].status == "finished"]
        more.append(max(finished, key=lambda one: ended[one].score).overrides[-1])
    return (*job.overrides, *more)


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def is_ready(job: Job, ended: dict[Job, End]) -> bool:
    """Whether all that it needs has ended."""
    return all(needed in ended for needed in job.needs)


def is_lost(job: Job, ended: dict[Job, End]) -> bool:
    """Whether a job that is ready can never begin, since what it needs has failed."""
    failed = [needed for needed in job.needs if ended[needed].status != "finished"]
    return len(failed) == len(job.needs) > 0 if job.chosen_from else bool(failed)


def config_with_seed(overrides: tuple[str, ...], seed: int) -> RunConfig:
    """The configuration of one run."""
    return replace(_composed(overrides), seed=seed)


def end_of(config: RunConfig) -> End:
    """How the last run of just this configuration ended, as its folder says."""
    from experiments.config.resume import is_finished
    from experiments.run_dir import sweeps

    folder = sweeps.begun(config)
    if folder is None:
        return End("not begun")
    info = json.loads((folder / "run.json").read_text())
    if is_finished(folder, config):
        scores = {int(k): score for k, score in info.get("pass_at", {}).items()}
        score = scores[min(scores)] if scores else float("-inf")
        return End("finished", folder, None, score)
    status = "interrupted" if info["status"] == "finished" else info["status"]
    return End(status, folder, info["error"])


@cache
def _composed(overrides: tuple[str, ...]) -> RunConfig:
    return config_of(overrides)
