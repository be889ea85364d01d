"""The runs of a study: their configurations, their order, and the state of each run folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path

from experiments.config.composition import config_of
from experiments.config.model_folder import with_last_model_folder
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.studies.study import PARENTS, Study


@dataclass(frozen=True)
class Job:
    """One run. Part of its configuration may come from other jobs."""

    arm: str
    seed: int
    overrides: tuple[str, ...]  # without the seed
    weights_of: Job | None = None
    rollouts_of: Job | None = None
    replay_of: Job | None = None
    chosen_from: tuple[Job, ...] = ()  # short runs; the last override of the best one is added
    trial: str = ""  # names a short run, which is not part of the comparison

    @property
    def label(self) -> str:
        """Unique in a study, and valid as a file name."""
        return f"{self.arm}-s{self.seed}" + (f"-{self.trial}" if self.trial else "")

    @property
    def needs(self) -> tuple[Job, ...]:
        """The jobs that must end before this one starts."""
        parents = (getattr(self, key) for key in PARENTS)
        return (*filter(None, parents), *self.chosen_from)


@dataclass
class End:
    """Outcome of a job's run, or its present state."""

    status: str  # finished | failed | interrupted | running | not begun
    folder: Path | None = None
    error: str | None = None
    score: float = float("-inf")  # pass@k of the smallest k at the last evaluation


Ended = Mapping[Job, End]


def jobs_of(
    study: Study, seeds: Sequence[int], arms: Sequence[str], overrides: Sequence[str]
) -> list[Job]:
    """All runs, seed by seed, so that each seed completes a comparison; dependencies come first.

    `overrides` apply to every run. Raises UserError for an invalid configuration, with its arm.
    """
    for arm in arms:
        if untuned := study.untuned_files(arm):
            raise UserError(
                f"arm {arm}: experiment={untuned[0]}: not tuned yet; `make tune` comes before "
                "`make study` (docs/reference/protocol.md)"
            )
    jobs: dict[Job, None] = {}
    for seed, arm in product(seeds, arms):
        try:
            job = _job(study, arm, seed, tuple(overrides))
        except UserError as error:
            raise UserError(f"arm {arm}: {error}") from error
        jobs |= dict.fromkeys((*_dependencies(job), job))
    for job in jobs:
        if job.trial and job.arm != arms[0]:  # checked once: all arms try the same values
            continue
        try:
            _composed(job.overrides)
        except UserError as error:
            raise UserError(f"arm {job.arm}: {error}") from error
    if not any(override.startswith("eval.") for override in overrides):  # else of another k
        _check_claims(study, {job.arm: _composed(job.overrides) for job in jobs if not job.trial})
    _check_distinct([job for job in jobs if job.seed == seeds[0] and not (job.needs or job.trial)])
    return list(jobs)


def _check_distinct(jobs: Sequence[Job]) -> None:
    """Raise UserError for arms with one configuration: a run is found by it, so they share runs."""
    for one, other in combinations(jobs, 2):
        if _composed(one.overrides) == _composed(other.overrides):
            raise UserError(
                f"arms {one.arm} and {other.arm} have the same configuration, so they would be the "
                "same runs; leave one out"
            )


def _check_claims(study: Study, configs: Mapping[str, RunConfig]) -> None:
    """Raise UserError if a claim is on a k that one of its arms does not measure."""
    for claim in study.claims:
        for arm in (claim.a, claim.b):
            config = configs.get(arm)  # None: the arm is not among those to run
            asked = re.search(r"@(\d+)", claim.metric)
            ks = [] if config is None else [k for k in config.eval.k if k <= config.eval.samples]
            if asked and ks and int(asked[1]) not in ks:
                raise UserError(
                    f"study={study.name.removeprefix('study-')}: the claim {claim.says!r} is on "
                    f"{claim.metric}, but arm {arm} measures k = {', '.join(map(str, ks))}; add "
                    f"{asked[1]} to eval.k"
                )


def _dependencies(job: Job) -> Iterator[Job]:
    for needed in job.needs:
        yield from (*_dependencies(needed), needed)


def _job(study: Study, name: str, seed: int, more: tuple[str, ...]) -> Job:
    arm = study.arms[name]
    given = (f"name={study.name}", *study.overrides, *arm.overrides, *more)
    overrides = with_last_model_folder(given)
    parents = {key: _job(study, parent, seed, more) for key, parent in arm.parents.items()}
    if arm.weights_of:
        model = _composed(overrides).model.name
        overrides = (*overrides, f'model.name="{model}-after-{arm.weights_of}"')
    if arm.rollouts_of:
        overrides = (*overrides, "replay.frozen=false")  # valid before the batches exist
    if arm.replay_of:
        overrides = (*overrides, "replay.own=true")  # likewise
    trials: list[Job] = []
    if choice := study.choice:
        short = (*overrides, f"name={study.name}-choice", *choice.overrides)
        for value in (f"{value:g}" for value in choice.values):
            trials.append(Job(name, choice.seed, (*short, f"{choice.key}={value}"), trial=value))
        if (split := _composed(short).eval.split) != "tune":
            raise UserError(
                f"choice: eval.split={split}: a value is chosen on the tune split alone; add "
                "eval.split=tune to choice.overrides"
            )
    evaluated = _composed(overrides).eval
    if evaluated.final:
        raise UserError(
            "eval.final=true: it is the runner's to set; write final: true in the study's YAML if "
            "no design follows from its results, else leave it out"
        )
    if study.final and evaluated.split == "test":
        overrides = (*overrides, "eval.final=true")
    return Job(
        name,
        seed,
        overrides,
        weights_of=parents.get("weights_of"),
        rollouts_of=parents.get("rollouts_of"),
        replay_of=parents.get("replay_of"),
        chosen_from=tuple(trials),
    )


def full_overrides(job: Job, ended: Ended) -> tuple[str, ...]:
    """All overrides but the seed, once the needed jobs have finished."""
    more = []
    if job.weights_of:
        path = _folder(job.weights_of, ended) / "checkpoints" / "final"
        more.append(f"model.path={_quoted(path)}")
    if job.rollouts_of:
        more.append(f"replay.from_runs=[{_quoted(_folder(job.rollouts_of, ended))}]")
        more.append("replay.frozen=true")
    if job.replay_of:
        more.append(f"replay.from_runs=[{_quoted(_folder(job.replay_of, ended))}]")
        more.append("replay.own=false")
    if job.chosen_from:
        finished = [trial for trial in job.chosen_from if ended[trial].status == "finished"]
        more.append(max(finished, key=lambda trial: ended[trial].score).overrides[-1])
    return (*job.overrides, *more)


def _folder(job: Job, ended: Ended) -> Path:
    folder = ended[job].folder
    assert folder is not None  # it has finished
    return folder


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def is_ready(job: Job, ended: Ended) -> bool:
    """Whether all needed jobs have ended."""
    return all(needed in ended for needed in job.needs)


def is_lost(job: Job, ended: Ended) -> bool:
    """Whether a ready job can never start, because a job it needs has failed."""
    failed = [needed for needed in job.needs if ended[needed].status != "finished"]
    return len(failed) == len(job.needs) > 0 if job.chosen_from else bool(failed)


def config_with_seed(overrides: tuple[str, ...], seed: int) -> RunConfig:
    """The configuration of one run."""
    return replace(_composed(overrides), seed=seed)


def end_of(config: RunConfig) -> End:
    """The state of the last run with exactly this configuration, from its folder."""
    from experiments.config.resume import is_finished
    from experiments.sweep import find_run

    folder = find_run(config)
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
