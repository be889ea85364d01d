"""Durations in the unit that fits their size: seconds, minutes or hours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple


class TimeUnit(NamedTuple):
    """A unit of time: its name, its symbol, and its length in seconds."""

    name: str
    symbol: str
    seconds: float


UNITS = (TimeUnit("seconds", "s", 1), TimeUnit("minutes", "min", 60), TimeUnit("hours", "h", 3600))
CHANGE = 2  # of a unit from which it is used, so that 119 s is not 2.0 min


def fitting_unit(seconds: Iterable[float]) -> TimeUnit:
    """Return the unit for the greatest of these durations; seconds if there is none."""
    most = max((abs(value) for value in seconds if math.isfinite(value)), default=0.0)
    return [UNITS[0], *(unit for unit in UNITS if most >= CHANGE * unit.seconds)][-1]


def duration(seconds: Any) -> str:
    """Return a duration with its unit, such as 0.12 s, 45 s, 3.2 min or 1.5 h; a dash for none."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    unit = fitting_unit([seconds])
    amount = seconds / unit.seconds
    if unit is not UNITS[0] or 1 <= amount < 10:
        return f"{amount:.1f} {unit.symbol}"
    return f"{amount:.0f} s" if amount >= 10 or amount == 0 else f"{amount:.2g} s"
