"""The form in which every benchmark hands on what it measured, and `make bench` reads it.

A benchmark writes `bench/NAME.json` with `save`, and nothing else is asked of it:

    {"bench": name, "made": {machine, versions, commit, …}, "rows": [one `Row` each]}
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from experiments.run_dir.machine import processor

FOLDER = Path("bench")
PACKAGES = ("torch", "transformers", "vllm", "trl", "numpy")


@dataclass(frozen=True)
class Row:
    """One measured quantity: the median of its rounds, and between what they lie."""

    case: str  # what was measured: an algorithm, a way, a shape
    measure: str  # of it: "to raw", "CPU time", …
    unit: str  # s, ms, MiB, tokens/s; "" for a ratio
    median: float
    low: float
    high: float
    rounds: int
    goal: str | None = None  # in words, e.g. "≤ 0.75"
    met: bool | None = None  # None where there is no goal


def row(
    case: str,
    measure: str,
    values: Sequence[float],
    unit: str = "",
    at_most: float | None = None,
    at_least: float | None = None,
) -> Row:
    """The row of some rounds' values; a goal is met by the median."""
    middle = statistics.median(values)
    goal, met = None, None
    if at_most is not None:
        goal, met = f"≤ {at_most:g}", middle <= at_most
    elif at_least is not None:
        goal, met = f"≥ {at_least:g}", middle >= at_least
    return Row(case, measure, unit, middle, min(values), max(values), len(values), goal, met)


def save(name: str, rows: Sequence[Row], /, folder: Path | None = None, **facts: Any) -> Path:
    """Write NAME.json into `folder` (None: FOLDER); `facts` say what was measured on what."""
    path = (folder or FOLDER) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    held = {"bench": name, "made": made() | facts, "rows": [asdict(each) for each in rows]}
    path.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n")
    return path


def made() -> dict[str, Any]:
    """When, by which commit, on what machine and with which versions."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def show(title: str, rows: Sequence[Row]) -> None:
    """The rows as a table on the screen."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", "measure", "median", "low", "high", "goal", title=title)
    for each in rows:
        figures = (figure(value, each.unit) for value in (each.median, each.low, each.high))
        table.add_row(each.case, each.measure, *figures, verdict(each.goal, each.met))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def figure(value: float, unit: str) -> str:
    """Three digits or whole numbers, with the unit."""
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()


def verdict(goal: str | None, met: bool | None) -> str:
    return "" if goal is None else f"{goal}: {'met' if met else 'NOT met'}"


def _commit() -> str:
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() or "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
