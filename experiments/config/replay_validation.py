"""Checks of what a run replays: responses of its own, of earlier runs, and programs from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import UserError

if TYPE_CHECKING:
    from experiments.config.schema import ReplayConfig, RunConfig, TrainConfig


def check_replay(c: RunConfig) -> None:
    """Raise UserError, which names the key, the value and the cure."""
    t, r = c.train, c.replay
    sources = [
        *(f"replay.from_runs=[{run}]" for run in r.from_runs),
        *(f"replay.files=[{file}]" for file in r.files),
    ]
    if r.frozen:
        _check_frozen(t, r)
    elif sources and not t.replay_share:
        raise UserError(
            f"{sources[0]} with train.replay_share=0: none of it would be used; set its share "
            "of each group, e.g. train.replay_share=0.5"
        )
    if t.replay_share and not (r.own or sources):
        raise UserError(
            f"train.replay_share={t.replay_share} with replay.own=false: there is nothing to "
            "replay; give replay.from_runs or replay.files, or replay.own=true"
        )
    if t.replay_share and not sources and r.max_age is not None:
        # own samples come in the batch after theirs, which older weights may have generated
        youngest = (t.lag + 1) * t.minibatches * t.epochs
        if r.max_age < youngest:
            raise UserError(
                f"replay.max_age={r.max_age}: this run's responses are at least {youngest} "
                "optimiser steps old when they are replayed"
                f"{f' from batch {t.lag + 2} on (train.lag={t.lag})' * bool(t.lag)}"
                f"; set {youngest} or more"
            )
    _check_paths(r)


def _check_paths(r: ReplayConfig) -> None:
    for key in ("from_runs", "files"):
        paths = [Path(path).resolve() for path in getattr(r, key)]
        if duplicates := [path for path in paths if paths.count(path) > 1]:
            raise UserError(f"replay.{key}: {duplicates[0]} is listed twice; list it once")
    for run in r.from_runs:
        if not any(Path(run).glob("samples/step-*.arrow")):
            raise UserError(
                f"replay.from_runs=[{run}]: no samples there; only runs with "
                "train.keep_samples=true record them"
            )
    for file in r.files:
        if not Path(file).is_file():
            raise UserError(f"replay.files=[{file}]: no such file")


def _check_frozen(t: TrainConfig, r: ReplayConfig) -> None:
    if len(r.from_runs) != 1 or r.files or t.replay_share or t.offline_share:
        raise UserError(
            "replay.frozen=true uses the unchanged batches of one run: set "
            "replay.from_runs=[FOLDER] with one folder, no replay.files, train.replay_share=0 and "
            "train.offline_share=0"
        )
    if t.keeps_rollout_copy or t.resample_zero_variance:
        raise UserError(
            "replay.frozen=true: nothing is generated, so train.lag, train.sync_every and "
            "train.resample_zero_variance have no effect; leave them at 0, 1 and false"
        )
    if t.curriculum != "none":
        raise UserError(
            f"train.curriculum={t.curriculum} with replay.frozen=true: the recorded run has fixed "
            "the problems of each batch; use train.curriculum=none, or record a run with the "
            "curriculum"
        )
