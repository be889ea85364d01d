"""How each group was trained: its hyper-parameters, all its settings, and a run of it made again.

A hyper-parameter that all groups share is named too: a reader asks for the group size and the lag
of an experiment, not only for what differs in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from analysis.load.groups import (
    LABEL_SECTIONS,
    LONGEST_VALUE,
    MACHINE_KEYS,
    OFF_VALUES,
    Group,
    Settings,
    as_text,
    cut,
    differing_keys,
)
from analysis.load.origins import recorded_responses, starting_points

NOTHING = "–"
FRESH = "fresh"
Cells = tuple[list[str], list[list[str]]]  # heading and rows


def hyperparameters(groups: Sequence[Group]) -> tuple[list[tuple[str, str]], Cells]:
    """Return what all groups share as (title, value), and a table of the rest, a row per group.

    Settings that a group's algorithm has not, and those that are off, are dashes. A title that says
    nothing of any group is left out.
    """
    texts = _texts(groups)
    shared = [(title, of[0]) for title, of in texts.items() if of[0] and len(set(of)) == 1]
    differing = [title for title, of in texts.items() if len(set(of)) > 1]
    rows = [
        [group.label, *(texts[title][place] or NOTHING for title in differing)]
        for place, group in enumerate(groups)
    ]
    return shared, (["", *differing], rows if differing else [])


def _texts(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Return title → what it says of each group, "" where a group has nothing of the kind."""
    origins = {
        "starts from": starting_points(groups),
        "recorded responses of": recorded_responses(groups),
    }
    columns = {
        title: [column.describe(g.settings) for g in groups] for title, column in COLUMNS.items()
    }
    return origins | columns


# A line for each group, so that a reader knows what its name stands for.

# What a name stands for first; the other hyper-parameters may only be tuned.
MAIN_TITLES = (
    *("starts from", "recorded responses of"),
    *("others' programs", "replayed", "rollout policy"),
)


def descriptions(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return label and description of each group; [] if the algorithms alone describe them.

    A description is the algorithm and what is not the same for all groups: first MAIN_TITLES, then
    settings that are words, then other hyper-parameters and numbers. What is off is left out.
    """
    differing = {title: of for title, of in _texts(groups).items() if len(set(of)) > 1}
    words, numbers = _other_settings(groups)
    lines = []
    for place in range(len(groups)):
        said = {
            title: f"{title} {of[place]}"
            for title, of in differing.items()
            if of[place] not in ("", FRESH)
        }
        main = [said.pop(title) for title in MAIN_TITLES if title in said]
        lines.append([*main, *words[place], *said.values(), *numbers[place]])
    if not any(lines):
        return []
    return [
        (group.label, "; ".join([group.algo, *line]))
        for group, line in zip(groups, lines, strict=True)
    ]


def _other_settings(groups: Sequence[Group]) -> tuple[list[list[str]], list[list[str]]]:
    """Return for each group its differing settings that COLUMNS lacks, as key=value.

    First those that are words, then numbers. An algorithm's own settings are compared between its
    groups only; of others, what is off is left out.
    """
    words: list[list[str]] = [[] for _ in groups]
    numbers: list[list[str]] = [[] for _ in groups]
    for key, members in _differing(groups):
        for place in members:
            settings = groups[place].settings
            of_algorithm = key.startswith("algo.")
            if key not in settings or (settings[key] in OFF_VALUES and not of_algorithm):
                continue
            text = f"{key.rpartition('.')[2]}={cut(as_text(settings[key]), LONGEST_VALUE)}"
            number = isinstance(settings[key], (int, float)) and type(settings[key]) is not bool
            (numbers if number else words)[place].append(text)
    return words, numbers


def _differing(groups: Sequence[Group]) -> Iterator[tuple[str, list[int]]]:
    """Yield key and places of the groups that it is compared between, where it differs."""
    known = {key for column in COLUMNS.values() for key in column.keys} | set(ORIGIN_KEYS)
    everyone = list(range(len(groups)))
    for algo in dict.fromkeys(group.algo for group in groups):
        same = [place for place in everyone if groups[place].algo == algo]
        for key in differing_keys([groups[place].settings for place in same]):
            if key.startswith("algo.") and key not in known:
                yield key, same
    for key in differing_keys([group.settings for group in groups]):
        section, _, last = key.partition(".")
        if section in ("replay", *LABEL_SECTIONS[1:]) and not {key, last} & {*known, *MACHINE_KEYS}:
            yield key, everyone


# What is said of a group's settings.


class Column(NamedTuple):
    """A hyper-parameter: the keys that it follows from, and what it says of a group's settings."""

    keys: tuple[str, ...]
    describe: Callable[[Settings], str]


def _of(*keys: str, form: str = "{}") -> Column:
    """Describe a group by these keys' values, "" if one is missing or all are off."""

    def describe(settings: Settings) -> str:
        values = [settings.get(key) for key in keys]
        if any(value is None for value in values) or all(value in OFF_VALUES for value in values):
            return ""
        return form.format(*map(as_text, values))

    return Column(keys, describe)


def _share(key: str) -> Column:
    """Describe a group by a share as a percentage, "" if it is 0."""
    return Column((key,), lambda s: f"{100 * s[key]:g} %" if s.get(key) else "")


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
    return ", ".join(parts) or FRESH


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


ORIGIN_KEYS = ("model.name", "model.path", "replay.from_runs", "replay.frozen")
COLUMNS: dict[str, Column] = {
    "steps": _of("steps"),
    "prompts × responses": _of("train.prompts", "train.group_size", form="{} × {}"),
    "learning rate": Column(("algo.learning_rate", "train.schedule"), _learning_rate),
    "critic's learning rate": _of("algo.critic_learning_rate"),
    "β": _of("algo.beta"),
    "KL weight": _of("algo.kl_coef"),
    "entropy weight": _of("algo.entropy_coef"),
    "weight decay": _of("train.weight_decay"),
    "norm clipping": Column(("train.clip_quantile", "train.max_grad_norm"), _norm_clipping),
    "minibatches × epochs": Column(("train.minibatches", "train.epochs"), _updates),
    "rollout policy": Column(("train.lag", "train.sync_every"), _staleness),
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

    The command reads the run's configuration from its folder. A packed study has no run folders: of
    its runs it is the command that began them.
    """
    rows = []
    for group in groups:
        run = group.runs[0]
        command = f"python run.py from={shlex.quote(_relative(run.path))}"
        if run.packed:
            command = str(run.info.get("command") or NOTHING)
        rows.append((group.label, command, _commit(run.info)))
    return rows


def _relative(path: Path) -> str:
    """Return the path below the present folder, else the whole path."""
    path = Path(path).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _commit(info: dict[str, Any]) -> str:
    return str(info.get("commit") or NOTHING)
