"""Settings of groups: those that all share, those that differ, and the command of a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.groups import Group, as_text
from analysis.runs import Run

NOTHING = "–"


def settings_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return settings.csv: group, setting, value, for all settings that can change a result."""
    rows = [
        (group.label, key, as_text(value))
        for group in groups
        for key, value in sorted(group.settings.items())
    ]
    return pd.DataFrame(rows, columns=["group", "setting", "value"])


def differing_settings(groups: Sequence[Group]) -> pd.DataFrame:
    """Return the settings in which groups differ, a row per setting and a column per group.

    A setting of an algorithm differs only between the groups that have it.
    """
    table = settings_table(groups).pivot(index="setting", columns="group", values="value")
    own = table.index.str.startswith("algo.")
    differ = table.nunique(axis=1, dropna=False).where(~own, table.nunique(axis=1)) > 1
    return table.loc[differ, [group.label for group in groups]].fillna(NOTHING)


def shared_facts(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return the settings of model, task and evaluation that all groups share."""
    table = settings_table(groups).groupby("setting")["value"].agg(["first", "nunique", "size"])
    shared = table[(table["nunique"] == 1) & (table["size"] == len(groups))]["first"]
    facts = ((str(key), str(text)) for key, text in shared.items())
    return [(key, text) for key, text in facts if key.startswith(("model", "task", "eval"))]


def sandbox(run: Run) -> dict[str, str | None]:
    """Return the run's sandbox as columns: its name, and how strongly it isolates programs."""
    recorded = run.info.get("sandbox")
    if not isinstance(recorded, dict):
        return {"sandbox": recorded, "sandbox_strength": None}
    rest = {key: value for key, value in recorded.items() if key not in ("name", "strength")}
    strength = [str(recorded.get("strength") or ""), as_text(rest) if rest else ""]
    return {"sandbox": recorded.get("name"), "sandbox_strength": "; ".join(filter(None, strength))}


def command(run: Run) -> str:
    """Return the command that makes a run again; of a packed run, the one that began it."""
    if run.packed:
        return str(run.info.get("command") or NOTHING)
    path = run.path.resolve()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"python run.py --config-path {shlex.quote(str(shown))}"
