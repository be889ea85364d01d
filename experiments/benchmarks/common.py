"""Shared by all benchmarks: options, result rows, the files and tables that hold them.

Each benchmark writes `NAME.json`: {"bench": name, "made": {machine, versions, …}, "rows": [Row]}.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import PositiveInt

from analysis.report import markdown
from envs.config_parsing import parse_arguments
from experiments.errors import UserError
from experiments.run_dir.machine import processor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("bench")
PACKAGES = ("torch", "transformers", "vllm", "trl", "numpy")
Schema = TypeVar("Schema", bound="DataclassInstance")


@dataclass
class Options:
    """Options of every benchmark."""

    rounds: PositiveInt = 5
    out: Path = FOLDER


@dataclass(frozen=True)
class Row:
    """One measured quantity: median and range over rounds."""

    case: str  # an algorithm, a backend, a shape
    measure: str  # e.g. CPU time
    unit: str  # s, ms, MiB, tokens/s; "" for a ratio
    median: float
    low: float
    high: float
    rounds: int
    goal: str | None = None  # e.g. "≤ 0.75"
    met: bool | None = None  # None without a goal


def row(
    case: str,
    measure: str,
    values: Sequence[float],
    unit: str = "",
    at_most: float | None = None,
    at_least: float | None = None,
) -> Row:
    """Summarise the values of all rounds. The goal applies to their median."""
    median = statistics.median(values)
    goal, met = None, None
    if at_most is not None:
        goal, met = f"≤ {at_most:g}", median <= at_most
    elif at_least is not None:
        goal, met = f"≥ {at_least:g}", median >= at_least
    return Row(case, measure, unit, median, min(values), max(values), len(values), goal, met)


def ratios(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Ratios within a round: machine load changes between rounds."""
    return [value / other for value, other in zip(values, baseline, strict=True)]


def finish(name: str, rows: Sequence[Row], out: Path, **facts: Any) -> None:
    """Print the rows, write `NAME.json` and `NAME.md`. `facts` describe the workload."""
    result = {"bench": name, "made": made() | facts, "rows": [asdict(each) for each in rows]}
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{name}.json", result)
    (out / f"{name}.md").write_text(section(name, result) + "\n")
    print(f"{section(name, result)}\n\nwritten to {out / name}.json")


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def section(title: str, result: dict[str, Any]) -> str:
    """Markdown: machine, versions and workload on one line, then the rows as a table."""
    facts = dict(result["made"])
    versions = ", ".join(f"{name} {number}" for name, number in facts.pop("versions").items())
    words = [facts.pop("machine"), f"Python {facts.pop('python')}", versions]
    words += [f"commit {facts.pop('commit')}", facts.pop("when")]
    for key, value in facts.items():
        if isinstance(value, dict):
            value = "; ".join(f"{case}: {why}" for case, why in value.items()) or "nothing"
        words.append(f"{key.replace('_', ' ')}: {value}")
    head = ["", "measure", "median", "range", "goal"]
    table = markdown.table(head, list(map(_cells, result["rows"])))
    return f"## {title}\n\n{'; '.join(words)}.\n\n{table}"


def _cells(row: dict[str, Any]) -> list[str]:
    unit, spread = row["unit"], "once"
    if row["rounds"] > 1:
        spread = f"{_figure(row['low'], '')} – {_figure(row['high'], unit)}"
    goal = "" if row["goal"] is None else f"{row['goal']}: {'met' if row['met'] else 'NOT met'}"
    return [row["case"], row["measure"], _figure(row["median"], unit), spread, goal]


def _figure(value: float, unit: str) -> str:
    """Three significant digits, or a whole number from 100 up, with the unit."""
    return f"{value:,.0f} {unit}".rstrip() if abs(value) >= 100 else f"{value:.3g} {unit}".rstrip()


def made() -> dict[str, Any]:
    """Time, commit, machine and versions of a measurement."""
    git = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES if find_spec(name)},
    }


@dataclass(frozen=True)
class Usage:
    """Output and cost of a finished process, its waited-for children included."""

    output: str
    wall_s: float
    cpu_s: float
    peak_mib: float


def run_process(arguments: Sequence[str], **environment: str) -> Usage:
    """Run this Python with `arguments` in the repository. Raises CalledProcessError."""
    command, start = [sys.executable, *arguments], time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    )
    output, _ = process.stdout.read(), process.stdout.close()  # type: ignore[union-attr]  # a pipe
    _, status, used = os.wait4(process.pid, 0)
    wall_s, process.returncode = time.perf_counter() - start, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Usage(output, wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def command(options: type[Schema], main: Callable[[Schema], int | None]) -> NoReturn:
    """Run a benchmark with the key=value arguments of the command line, and exit."""
    try:
        parsed = parse_arguments(options, sys.argv[1:])
    except ValueError as error:
        sys.exit(f"error: {error}")
    try:
        sys.exit(main(parsed))
    except UserError as error:
        sys.exit(f"error: {error}")
