"""`make bench-runtimes`: `runtime=ray` with batches in flight against `runtime=sync`, per token.

The same runs under both, one after the other in each round, the bundled model on MiniContests: all
of a run's processes are counted, Ray's own too. What a run of no steps takes, under the same
runtime in the same round, is taken off, and what is left is divided by the tokens trained on. The
numbers are those of a small model and small batches: what the actors themselves cost shows most.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pandas as pd

from experiments.benchmarks import rows
from experiments.benchmarks.rows import row

ROOT = Path(__file__).resolve().parents[2]
RUN = (
    *("task=mini", "model=nano", "sandbox=embedded", "sandbox.workers=1", "logger=none"),
    *("eval.every=0", "eval.samples=2", "eval.k=[1]", "eval.kl_samples=0", "task.test_problems=4"),
    *("engine.check_every=0", "train.checkpoint_every=0", "train.prompts=4"),
)
CASES = {
    "GRPO": ("algo=grpo",),
    "half-online SPO": ("algo=spo", "train.offline_share=0.5"),
}
RUNTIMES = {
    "sync, lag 0": ("runtime=sync",),
    "ray, lag 10": ("runtime=ray", "train.lag=10"),
}
# Where a control group of v1 counts CPU time, or one of v2
GROUPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))
ENDS_S = 60  # for what Ray leaves


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, write `bench/runtimes.json`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path, default=rows.FOLDER)
    options = parser.parse_args(argv)
    taken: dict[tuple[str, str], list[list[float]]] = {}
    for turn in range(options.rounds):
        order = list(RUNTIMES)[:: 1 if turn % 2 else -1]
        starts = {name: once((*CASES["GRPO"], *RUNTIMES[name], "steps=0"))[0] for name in order}
        for case, runtime in product(CASES, order):
            given = (*CASES[case], *RUNTIMES[runtime], f"steps={options.steps}")
            whole, tokens = once(given)
            found = [
                (all_of - s) / tokens for all_of, s in zip(whole, starts[runtime], strict=True)
            ]
            taken.setdefault((case, runtime), []).append(found)
            print(turn + 1, case, runtime, *(f"{1e3 * one:.3f} ms" for one in found), flush=True)
    found = list(_rows(taken))
    rows.show(f"{options.steps} steps, for each token trained on", found)
    print(f"written to {rows.save('runtimes', found, options.out, steps=options.steps)}")


def _rows(taken: dict[tuple[str, str], list[list[float]]]) -> Iterator[rows.Row]:
    for case in CASES:
        one, other = (taken[case, runtime] for runtime in RUNTIMES)
        for at, measure in enumerate(("wall time", "CPU time")):
            for runtime in RUNTIMES:
                values = [1e3 * each[at] for each in taken[case, runtime]]
                yield row(f"{case}, {runtime}", f"{measure} a trained token", values, "ms")
            ratios = [second[at] / first[at] for first, second in zip(one, other, strict=True)]
            yield row(f"{case}, ray to sync", f"{measure} a trained token", ratios)


def once(given: Sequence[str]) -> tuple[tuple[float, float], int]:
    """(wall, CPU) seconds of one run, of all its processes, and the tokens that it trained on."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder, control_group() as group:
        command = [sys.executable, "run.py", *RUN, *given, f"output_dir={folder}"]
        inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
        begin = time.perf_counter()
        subprocess.run(inside, cwd=ROOT, env=environment, check=True, capture_output=True)
        wall = time.perf_counter() - begin
        (table,) = Path(folder).glob("*/*/metrics.parquet")
        tokens = pd.read_parquet(table).get("budget/trained_tokens", [0])
        return (wall, cpu_s(group)), int(max(tokens))


@contextmanager
def control_group() -> Iterator[Path]:
    """One of its own: Ray has the kernel forget what its workers have used, this one does not."""
    where = next(each for each in GROUPS if (each / "cgroup.procs").is_file())
    group = where / f"spo-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise SystemExit(f"bench-runtimes: CPU time needs a control group: {error}") from error
    try:
        yield group
    finally:
        until = time.monotonic() + ENDS_S
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.1)
        group.rmdir()


def cpu_s(group: Path) -> float:
    """Used by all that was ever in it."""
    if (group / "cpuacct.usage").is_file():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    told = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(told["usage_usec"]) / 1e6


if __name__ == "__main__":
    main()
