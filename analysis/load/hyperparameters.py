"""How each group was trained: its hyper-parameters, all its settings, and a run of it made again.

A hyper-parameter that all groups share is named too: a reader asks for the group size and the lag
of an experiment, not only for what differs in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load.groups import OFF_VALUES, Group, Settings, as_text

NOTHING = "–"


Cells = tuple[list[str], list[list[str]]]  # heading and rows


def hyperparameters(groups: Sequence[Group]) -> tuple[list[tuple[str, str]], Cells]:
    """Return what all groups share as (title, value), and a table of the rest, a row per group.

    Settings that a group's algorithm has not, and those that are off, are dashes. A title that says
    nothing of any group is left out.
    """
    texts = {title: [describe(g.settings) for g in groups] for title, describe in COLUMNS.items()}
    shared = [(title, of[0]) for title, of in texts.items() if of[0] and len(set(of)) == 1]
    differing = [title for title, of in texts.items() if len(set(of)) > 1]
    rows = [
        [group.label, *(texts[title][place] or NOTHING for title in differing)]
        for place, group in enumerate(groups)
    ]
    return shared, (["", *differing], rows if differing else [])


def _of(*keys: str, form: str = "{}") -> Callable[[Settings], str]:
    """Describe a group by these keys' values, "" if one is missing or all are off."""

    def describe(settings: Settings) -> str:
        values = [settings.get(key) for key in keys]
        if any(value is None for value in values) or all(value in OFF_VALUES for value in values):
            return ""
        return form.format(*map(as_text, values))

    return describe


def _share(key: str) -> Callable[[Settings], str]:
    """Describe a group by a share as a percentage, "" if it is 0."""
    return lambda settings: f"{100 * settings[key]:g} %" if settings.get(key) else ""


def _learning_rate(settings: Settings) -> str:
    rate, schedule = settings.get("algo.learning_rate"), settings.get("train.schedule")
    if rate is None:
        return ""
    return as_text(rate) if schedule in (None, "constant") else f"{as_text(rate)}, {schedule}"


def _staleness(settings: Settings) -> str:
    """Describe how far the rollout policy is behind, in batches; "fresh" if it never is."""
    lag, sync = settings.get("train.lag"), settings.get("train.sync_every")
    if lag is None and sync is None:
        return ""
    parts = [f"lag {lag}"] if lag else []
    parts += [f"synced every {sync} batches"] if sync not in (None, 1) else []
    return ", ".join(parts) or "fresh"


def _updates(settings: Settings) -> str:
    """Describe the optimiser steps on a batch: minibatches × epochs."""
    minibatches, epochs = settings.get("train.minibatches"), settings.get("train.epochs")
    if minibatches is None or epochs is None:
        return ""
    return "1" if minibatches == epochs == 1 else f"{minibatches} × {epochs}"


def _norm_clipping(settings: Settings) -> str:
    if quantile := settings.get("train.clip_quantile"):
        return f"quantile {as_text(quantile)}"
    norm = settings.get("train.max_grad_norm")
    return f"at {as_text(norm)}" if norm else ""


COLUMNS: dict[str, Callable[[Settings], str]] = {
    "steps": _of("steps"),
    "prompts × responses": _of("train.prompts", "train.group_size", form="{} × {}"),
    "learning rate": _learning_rate,
    "critic's learning rate": _of("algo.critic_learning_rate"),
    "β": _of("algo.beta"),
    "KL weight": _of("algo.kl_coef"),
    "entropy weight": _of("algo.entropy_coef"),
    "weight decay": _of("train.weight_decay"),
    "norm clipping": _norm_clipping,
    "minibatches × epochs": _updates,
    "rollout policy": _staleness,
    "others' programs": _share("train.offline_share"),
    "replayed": _share("train.replay_share"),
    "temperature": _of("train.temperature"),
    "adapter": _of("model.adapter"),
}


def settings_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return settings.csv: group, setting, value, for all settings that can change a result."""
    rows = [
        (group.label, key, as_text(value))
        for group in groups
        for key, value in sorted(group.settings.items())
    ]
    return pd.DataFrame(rows, columns=["group", "setting", "value"])


def shared_values(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return key and value of the settings that all groups have in common, by key."""
    first, *others = [
        {key: as_text(value) for key, value in group.settings.items()} for group in groups
    ]
    common = {key for key, text in first.items() if all(o.get(key) == text for o in others)}
    return [(key, first[key]) for key in sorted(common)]


def commands(groups: Sequence[Group]) -> list[tuple[str, str, str]]:
    """Return for each group its label, the command that makes its first run again, and the commit.

    The command reads the run's configuration from its folder.
    """
    rows = []
    for group in groups:
        run = group.runs[0]
        folder = shlex.quote(_relative(run.path))
        rows.append((group.label, f"python run.py from={folder}", _commit(run.info)))
    return rows


def _relative(path: Path) -> str:
    """Return the path below the present folder, else the whole path."""
    path = Path(path).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _commit(info: dict[str, Any]) -> str:
    return str(info.get("commit") or NOTHING)
