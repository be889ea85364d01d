"""`make bench-start`: time from the command to the first step, of a run on one problem.

Each round is a whole `run.py` process of no steps. The first one fills the caches and is reported
apart.
"""

from __future__ import annotations

import tempfile

from experiments.benchmarks.common import Options, command, finish, row, time_run

RUN = (
    *("steps=0", "task.train_problems=1", "task.choose_problems=1", "eval.samples=2", "eval.k=[1]"),
    "sandbox=embedded",
)
GOAL = "≤ 6"  # seconds


def main(options: Options) -> None:
    """Measure and write `start.json`."""
    with tempfile.TemporaryDirectory() as folder:
        run, cache = (*RUN, f"output_dir={folder}/outputs"), f"{folder}/cache"
        starts = [time_run(run, SPO_BENCH_CACHE=cache) for _ in range(options.rounds + 1)]
    case, (first, *others) = "run.py steps=0, one problem", starts
    rows = [
        row(case, "wall time", [start["wall time"] for start in others], "s", GOAL),
        row(case, "CPU time", [start["CPU time"] for start in others], "s"),
        row(f"{case}, empty caches", "wall time", [first["wall time"]], "s"),
    ]
    finish("start", rows, options.out)


if __name__ == "__main__":
    command(Options, main)
