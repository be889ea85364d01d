"""`make bench`: run every benchmark in a process of its own, then write one page of results.

A failed benchmark does not stop the others. The page has all results of the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.benchmarks import common
from experiments.studies.cli import choose

TITLES = {
    "judge": "Judging",
    "generate": "Generation",
    "prepare": "Preparing a data set",
    "train": "An optimiser step",
    "memory": "Memory",
    "report": "A report of many runs",
    "start": "From the command to the first step",
    "runtimes": "Ray compared with one process",
}


@dataclass
class Options(common.Options):
    only: str | None = None  # names of benchmarks, separated by commas


def main(options: Options) -> int:
    """Return 1 if any benchmark failed."""
    failed = run(choose("only", options.only, list(TITLES)))
    write_page(options.out, failed)
    print(f"written to {options.out / 'report.md'}")
    return min(1, len(failed))


def run(names: Sequence[str]) -> dict[str, str]:
    """Run the benchmarks; return the failures as {name: reason}."""
    failed = {}
    for name in names:
        start = time.monotonic()
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"experiments.benchmarks.{name}"]
        status = subprocess.run(command, check=False).returncode
        if status:
            failed[name] = f"ended with {status} after {time.monotonic() - start:.0f} s"
    return failed


def write_page(folder: Path, failed: dict[str, str]) -> None:
    """Write `report.md` from the results in `folder`."""
    parts = ["# Benchmarks", *(f"**{name}** {reason}." for name, reason in failed.items())]
    for name, title in TITLES.items():
        if (file := folder / f"{name}.json").is_file():
            result = json.loads(file.read_text())
            parts.append(common.section(f"{title} (`make bench-{name}`)", result))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    common.command(Options, main)
