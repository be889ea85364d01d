"""Names for variants of one thing, made of the settings in which they differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

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
