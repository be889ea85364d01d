"""`make bench-start`: time from the command to the first step, of a run on one problem.

Each round is a whole `run.py` process of no steps. The first one fills the caches and is reported
apart.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from experiments.benchmarks.common import Options, Usage, command, finish, row, run_process

TINY = ("task.train_problems=1", "task.test_problems=1", "eval.samples=2", "eval.k=[1]")
AT_MOST_S = 6.0


def main(options: Options) -> None:
    """Measure and write `start.json`."""
    with tempfile.TemporaryDirectory() as folder:
        first, *others = [_start(Path(folder)) for _ in range(options.rounds + 1)]
    case = "run.py steps=0, one problem"
    rows = [
        row(case, "wall time", [usage.wall_s for usage in others], "s", at_most=AT_MOST_S),
        row(case, "CPU time", [usage.cpu_s for usage in others], "s"),
        row(f"{case}, empty caches", "wall time", [first.wall_s], "s"),
    ]
    finish("start", rows, options.out)


def _start(folder: Path) -> Usage:
    run = ("run.py", "steps=0", *TINY, "sandbox=embedded", f"output_dir={folder / 'outputs'}")
    return run_process(run, SPO_BENCH_CACHE=str(folder / "cache"), OMP_NUM_THREADS="1")


if __name__ == "__main__":
    command(Options, main)
