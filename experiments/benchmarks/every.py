"""`make bench`: every benchmark, one after the other, and one page of what they found.

Each runs in a process of its own and writes `NAME.json` (`rows.py` says what is in it); one that
fails does not keep the others from running. The page, `report.md`, and `every.json` are made from
whatever lies in the folder: `--page` makes them again without measuring.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.report import markdown
from experiments.benchmarks import rows
from experiments.benchmarks.rows import figure, verdict

NAMES = {
    "judge": "What judging costs",
    "generate": "Writing responses",
    "prepare": "Preparing a data set",
    "train": "An optimiser step",
    "memory": "Memory",
    "report": "A report of many runs",
    "start": "From the command to the first step",
    "runtimes": "Ray against one process",
}

JUDGE_GOALS = ("Goals: CPU of a wrong program ≤ 4.5 ms, of a right one with one test ≤ 4.0 ms.", "")


def main(argv: Sequence[str] | None = None) -> int:
    """The number of benchmarks that failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--out", type=Path, default=rows.FOLDER)
    options = parser.parse_args(argv)
    failed = {} if options.page else run(options.only)
    page(options.out, failed)
    print(f"written to {options.out / 'report.md'}")
    return len(failed)


def run(names: Sequence[str]) -> dict[str, str]:
    """What became of those that failed."""
    failed = {}
    for name in names:
        begin = time.monotonic()
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"experiments.benchmarks.{name}"]
        status = subprocess.run(command, check=False).returncode
        if status:
            failed[name] = f"ended with {status} after {time.monotonic() - begin:.0f} s"
    return failed


def page(folder: Path, failed: dict[str, str]) -> None:
    """`report.md` and `every.json` of the results in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: _read(folder / f"{name}.json") for name in NAMES}
    found = {name: result for name, result in found.items() if result is not None}
    held = {"made": rows.made(), "failed": failed, "benches": found}
    (folder / "every.json").write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n")
    lines = ["# Benchmarks", ""]
    for file in sorted((folder / "judge").glob("*summary.csv")):
        lines += [f"## What judging costs: {file.stem} (`make bench-judge`)", ""]
        lines += [*JUDGE_GOALS, _csv(file), ""]
    lines += [f"**{name}** {why}." for name, why in failed.items()]
    for name, result in found.items():
        lines += [f"## {NAMES[name]} (`make bench-{name}`)", "", _in_words(result["made"]), ""]
        lines += [table(result["rows"]), ""]
    (folder / "report.md").write_text("\n".join(lines))


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.is_file() else None


def _csv(file: Path) -> str:
    """A table of medians in Markdown."""
    with file.open() as lines:
        head, *body = csv.reader(lines)
    return markdown.table(head, [_short(cells) for cells in body])


def _short(cells: Sequence[str]) -> list[str]:
    try:
        return [figure(float(cell), "") if "." in cell else cell for cell in cells]
    except ValueError:
        return list(cells)


def _in_words(made: dict[str, Any]) -> str:
    """Machine, versions and whatever else was said of how it was made, in a line."""
    known = dict(made)
    versions = ", ".join(f"{name} {number}" for name, number in known.pop("versions").items())
    told = [known.pop("machine"), f"Python {known.pop('python')}", versions]
    told += [f"commit {known.pop('commit')}", known.pop("when")]
    for key, value in known.items():
        if isinstance(value, dict):
            value = "; ".join(f"{case}: {why}" for case, why in value.items()) or "nothing"
        told.append(f"{key.replace('_', ' ')}: {value}")
    return "; ".join(told) + "."


def table(found: Sequence[dict[str, Any]]) -> str:
    """Rows in Markdown."""
    return markdown.table(["", "measure", "median", "between", "goal"], list(map(_cells, found)))


def _cells(row: dict[str, Any]) -> list[str]:
    unit, goal = row["unit"], verdict(row["goal"], row["met"])
    spread = f"{figure(row['low'], '')} – {figure(row['high'], unit)}"
    if row["rounds"] == 1:
        spread = "once"
    return [row["case"], row["measure"], figure(row["median"], unit), spread, goal]


if __name__ == "__main__":
    sys.exit(min(1, main()))
