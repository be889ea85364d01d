"""`make bench-start`: from the command to the first step, of a run on one problem.

`run.py` in a process of its own, once to fill the stores (not counted) and then again: imports,
configuration, task, model, sandbox, learner, and the base's evaluation, which is known by then: all
that comes before the first step, and the end of the process.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.benchmarks import rows
from experiments.benchmarks.rows import row

ROOT = Path(__file__).resolve().parents[2]
RUN = (
    "steps=0",
    "task.train_problems=1",
    "task.test_problems=1",
    "eval.samples=2",
    "eval.k=[1]",
    "sandbox=embedded",
)
AT_MOST_S = 6.0


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, write `bench/start.json`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=rows.FOLDER)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        taken = [once(Path(folder)) for _ in range(options.rounds + 1)]
    wall, cpu = zip(*taken[1:], strict=True)
    found = [
        row("run.py steps=0, one problem", "wall time", wall, "s", at_most=AT_MOST_S),
        row("run.py steps=0, one problem", "CPU time", cpu, "s"),
        row("the same, with nothing prepared", "wall time", [taken[0][0]], "s"),
    ]
    rows.show("the start", found)
    print(f"written to {rows.save('start', found, options.out)}")


def once(folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of one run, its children's included."""
    environment = os.environ | {"SPO_BENCH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "run.py", *RUN, f"output_dir={folder / 'outputs'}"]
    before, begin = _children_s(), time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin, _children_s() - before


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
