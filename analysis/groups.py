"""Sort runs into groups that differ in nothing but their seed, and name the groups.

Only such runs may be averaged. Whatever else differs in their configs makes another group, and the
label shows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.arms import arm_names
from analysis.labels import Settings, distinguish, natural, spelling
from analysis.runs import Run

# What names, places, shows or measures a run without changing what it learns.
NOT_SETTINGS = ("seed", "output_dir", "name", "logger", "tuned", "eval.k", "eval.kl_samples")
NOT_SETTINGS += ("runtime.overlap", "model.checkpoint_activations")  # time and memory
KEPT = ("keep_samples", "keep_best", "keep_checkpoints", "checkpoint_every")  # of train
RUN_NAME = re.compile(r"-s\d+-\d{8}-\d{6}(-\d+)?$")  # what a run folder adds to its algorithm


@dataclass(frozen=True)
class Group:
    """Runs of one setting, one per seed. `repeats` are runs whose seed a better run stands for."""

    label: str
    settings: Settings  # dotted key → value
    runs: tuple[Run, ...]
    repeats: tuple[Run, ...] = ()

    @property
    def algo(self) -> str:
        return self.runs[0].algo

    @cached_property
    def last_step(self) -> int:
        """The latest step at which any of the runs was evaluated; 0 where none was."""
        return max((run.evaluated_steps[-1] for run in self.runs if run.evaluated_steps), default=0)

    @cached_property
    def complete(self) -> tuple[Run, ...]:
        """The runs that were evaluated at `last_step`: those that the final numbers average."""
        return tuple(run for run in self.runs if self.last_step in run.evaluated_steps)


def flatten(config: dict[str, Any], prefix: str = "") -> Settings:
    """Nested mapping → {"train.learning_rate": 3e-4, …}; lists stay values."""
    flat: Settings = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def settings_of(run: Run) -> Settings:
    """What a run computed with: its flat config without NOT_SETTINGS, plus the data's hash.

    Values that are paths inside the run's own output folder differ from run to run and are dropped;
    of the runs whose samples it took, what they are stays, and neither seed nor time.
    """
    home = str(run.config.get("output_dir") or run.path)
    flat = {
        key: value
        for key, value in flatten(run.config).items()
        if key not in NOT_SETTINGS
        and key.split(".")[0] not in NOT_SETTINGS
        and not (isinstance(value, str) and value.startswith((home + "/", str(run.path))))
        and key not in {f"train.{kept}" for kept in KEPT}
    }
    if taken := flat.get("replay.from_runs"):
        flat["replay.from_runs"] = ["/".join(_named(Path(folder))) for folder in taken]
    return flat | {"data_hash": run.info.get("data_hash")}


def _named(folder: Path) -> tuple[str, str]:
    """A run folder's experiment and algorithm."""
    return folder.parent.name, RUN_NAME.sub("", folder.name)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups sorted by label, a study's arms by their names, the runs in each by seed."""
    by_settings: dict[str, list[Run]] = {}
    known = {_key(run, without=("data_hash",)): _key(run) for run in runs if _data_hash(run)}
    for run in runs:
        # A run that stopped before it had read its data is taken to be one of those like it.
        key = _key(run) if _data_hash(run) else known.get(_key(run, without=("data_hash",)), "")
        by_settings.setdefault(key or _key(run), []).append(run)
    for members in by_settings.values():
        members.sort(key=lambda run: _data_hash(run) is None)
    groups = [_one_per_seed(settings_of(members[0]), members) for members in by_settings.values()]
    for algo in {group.algo for group in groups}:
        same = [i for i, group in enumerate(groups) if group.algo == algo]
        labels = distinguish(algo, [groups[i].settings for i in same])
        for i, label in zip(same, labels, strict=True):
            groups[i] = replace(groups[i], label=label)
    if names := arm_names([group.runs for group in groups]):
        groups = [replace(g, label=name) for g, name in zip(groups, names, strict=True)]
    return sorted(groups, key=lambda group: natural(group.label))


def _data_hash(run: Run) -> str | None:
    return run.info.get("data_hash")


def _key(run: Run, without: Sequence[str] = ()) -> str:
    settings = {k: spelling(v) for k, v in settings_of(run).items() if k not in without}
    return json.dumps([run.algo, settings], sort_keys=True)


def _one_per_seed(settings: Settings, runs: Sequence[Run]) -> Group:
    """Of runs with one seed, keep the one that got furthest, and the latest of those."""

    def merit(run: Run) -> tuple[int, bool, str]:
        last = run.evaluated_steps[-1] if run.evaluated_steps else -1
        return last, run.status == "finished", str(run.info.get("started") or "")

    best: dict[Any, Run] = {}
    for run in sorted(runs, key=merit):
        best[run.seed] = run
    kept = sorted(best.values(), key=lambda run: (str(type(run.seed)), run.seed))
    return Group("", settings, tuple(kept), tuple(run for run in runs if run not in kept))
