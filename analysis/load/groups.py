"""Sort runs into groups that differ in nothing but their seed, and name the groups.

Only such runs may be averaged. Whatever else differs in their configs makes another group, and the
label shows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.load.run_folders import Run, arm_names

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


# Names for variants of one thing, made of the settings in which they differ.


Settings = dict[str, Any]  # dotted key → value

LONGEST = 48  # characters of a label that still names every difference
LONGEST_VALUE = 24
SAYING = ("algo", "train", "task", "model", "eval", "steps")
OFF = (None, False, 0, "none", "", [], {})
OF_MACHINE = ("micro_batch", "micro_tokens", "threads", "device", "dtype")


def distinguish(name: str, settings: Sequence[Settings]) -> list[str]:
    """Labels for variants of `name`, no two alike: `name key=value …`.

    All keys in which the variants differ, by last part where that is unique; where this makes a
    label longer than LONGEST, the fewest that tell the variants apart, long values cut: first what
    one has and another has not, then amounts, which may only be tuned. A key that a variant does
    not have is not shown there.
    """
    keys = sorted(differing_keys(settings), key=_rank)
    labels = [_label(name, variant, keys) for variant in settings]
    if all(len(label) <= LONGEST for label in labels) and len(set(labels)) == len(labels):
        return labels
    keys = sorted(keys, key=lambda key: (_unsaying(key), not _off(settings, key)))
    keys = _fewest(settings, keys)
    labels = [_label(name, variant, keys, LONGEST_VALUE) for variant in settings]
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: i + 1].count(label)}"
        for i, label in enumerate(labels)
    ]


def _label(name: str, variant: Settings, keys: Sequence[str], longest: int | None = None) -> str:
    last = {key: key.rpartition(".")[2] for key in keys}
    ambiguous = {part for part in last.values() if list(last.values()).count(part) > 1}
    shown = {key: key if part in ambiguous else part for key, part in last.items()}
    parts = [f"{shown[key]}={_cut(plain(variant[key]), longest)}" for key in keys if key in variant]
    return " ".join([name, *parts])


def _cut(text: str, longest: int | None) -> str:
    """Of a path its end says which it is, of anything else the beginning."""
    if longest is None or len(text) <= longest:
        return text
    return f"…{text[1 - longest :]}" if "/" in text else f"{text[: longest - 1]}…"


def _rank(key: str) -> tuple[int, str]:
    """What is trained and how says more of a variant than where it ran, and names it first."""
    return len(SAYING) if _unsaying(key) else SAYING.index(key.partition(".")[0]), key


def _unsaying(key: str) -> bool:
    section, _, last = key.partition(".")
    return last in OF_MACHINE or section not in SAYING


def _off(settings: Sequence[Settings], key: str) -> bool:
    """Whether some variant does without it altogether."""
    return any(key in variant and variant[key] in OFF for variant in settings)


def _fewest(settings: Sequence[Settings], keys: Sequence[str]) -> list[str]:
    """The first of `keys` that tell the variants apart, and none that the others make needless."""

    def told_apart(chosen: Sequence[str]) -> int:
        return len({tuple(_spelt(variant, key) for key in chosen) for variant in settings})

    chosen: list[str] = []
    for key in keys:
        if told_apart([*chosen, key]) > told_apart(chosen):
            chosen.append(key)
    for key in reversed(chosen):
        others = [other for other in chosen if other != key]
        if told_apart(others) == told_apart(chosen):
            chosen = others
    return chosen


def differing_keys(settings: Sequence[Settings]) -> list[str]:
    """The keys, sorted, whose values are not the same in all; absent counts as a value."""
    keys = sorted({key for variant in settings for key in variant})
    return [key for key in keys if len({_spelt(variant, key) for variant in settings}) > 1]


def _spelt(variant: Settings, key: str) -> str | None:
    return spelling(variant[key]) if key in variant else None


def natural(label: str) -> list[tuple[float, str]]:
    """A key to sort labels by, in which 5 comes before 20."""
    parts = re.split(r"((?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?)", label)
    return [(float(part), "") if i % 2 else (0.0, part) for i, part in enumerate(parts)]


def spelling(value: Any) -> str:
    """A text that is equal for equal settings: 1 and 1.0 are one setting, 1 and true are two."""
    return json.dumps(float(value) if type(value) is int else value, sort_keys=True, default=str)


def plain(value: Any) -> str:
    """A value from config.yaml or run.json as one would type or say it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list):
        return f"[{','.join(map(plain, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def listed(names: Iterable[str], most: int = 6) -> str:
    """a, b and c; beyond `most` only how many more."""
    names = list(names)
    shown = names[:most] + ([f"{len(names) - most} more"] if len(names) > most else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
