"""`make bench-start`: time from the command to the first step, of a run on one problem.

Each round is a whole `run.py` process of no steps. The first one fills the caches and is reported
apart.
"""

from __future__ import annotations

import tempfile

from experiments.benchmarks.common import Options, command, compare, finish, row, time_run

RUN = (
    *("steps=0", "task.train_problems=1", "task.choose_problems=1", "eval.samples=2", "eval.k=[1]"),
    "sandbox=embedded",
)
CASE, GOAL = "run.py steps=0, one problem", "≤ 6"  # seconds


def main(options: Options) -> None:
    """Measure and write `start.json`."""
    with tempfile.TemporaryDirectory() as folder:
        run, cache = (*RUN, f"output_dir={folder}/outputs"), f"{folder}/cache"
        first, *starts = [time_run(run, SPO_BENCH_CACHE=cache) for _ in range(options.rounds + 1)]
    rows = compare({CASE: starts}, "s", goals={(CASE, "wall time"): GOAL})
    empty = row(f"{CASE}, empty caches", "wall time", [first["wall time"]], "s")
    finish("start", [*rows, empty], options.out)


if __name__ == "__main__":
    command(Options, main)
