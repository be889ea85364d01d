"""`make bench-runtimes`: time per trained token of `runtime=ray` and of `runtime=sync`.

Both run the bundled model on MiniContests, in turn. The time of a run of no steps is subtracted.
CPU time is that of all processes, Ray's included. A small model and small batches show most of
what the actors themselves cost.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd
from pydantic import PositiveInt

from experiments.benchmarks import common
from experiments.benchmarks.common import ratios, row, run_process

RUN = (
    *("task=mini", "model=nano", "sandbox=embedded", "sandbox.workers=1", "logger=none"),
    *("eval.every=0", "eval.samples=2", "eval.k=[1]", "eval.kl_samples=0", "task.test_problems=4"),
    *("engine.logprob_check_every=0", "train.checkpoint_every=0", "train.prompts=4"),
)
CASES = {"GRPO": ("algo=grpo",), "half-online SPO": ("algo=spo", "train.offline_share=0.5")}
SYNC, RAY = "sync, lag 0", "ray, lag 10"
RUNTIMES = {SYNC: ("runtime=sync",), RAY: ("runtime=ray", "train.lag=10")}
CGROUPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))  # version 1, version 2
RAY_EXIT_S = 60
IN_GROUP = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); " + (
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 3
    steps: PositiveInt = 30


def main(options: Options) -> None:
    """Measure and write `runtimes.json`."""
    costs: dict[tuple[str, str, str], list[float]] = defaultdict(list)  # ms a token
    for number in range(options.rounds):
        order = list(RUNTIMES)[:: 1 if number % 2 else -1]
        starts = {name: _cost((*CASES["GRPO"], *RUNTIMES[name], "steps=0")) for name in order}
        for case, runtime in product(CASES, order):
            run = _cost((*CASES[case], *RUNTIMES[runtime], f"steps={options.steps}"))
            for measure in ("wall time", "CPU time"):
                spent = run[measure] - starts[runtime][measure]
                costs[case, runtime, measure].append(1000 * spent / run["tokens"])
    rows = []
    for case, measure in product(CASES, ("wall time", "CPU time")):
        name, sync, ray = f"{measure} a trained token", *(costs[case, r, measure] for r in RUNTIMES)
        rows += [row(f"{case}, {SYNC}", name, sync, "ms"), row(f"{case}, {RAY}", name, ray, "ms")]
        rows.append(row(f"{case}, ray to sync", name, ratios(ray, sync)))
    common.finish("runtimes", rows, options.out, steps=options.steps)


def _cost(overrides: Sequence[str]) -> dict[str, float]:
    """Wall and CPU seconds of a run, and the tokens it trained on."""
    with tempfile.TemporaryDirectory() as folder, _control_group() as group:
        run = ("run.py", *RUN, *overrides, f"output_dir={folder}")
        usage = run_process(("-c", IN_GROUP, f"{group}/cgroup.procs", *run), OMP_NUM_THREADS="1")
        (metrics,) = Path(folder).glob("*/*/metrics.parquet")
        tokens = max(pd.read_parquet(metrics).get("budget/trained_tokens", [0]))
        return {"wall time": usage.wall_s, "CPU time": _cpu_s(group), "tokens": tokens}


@contextmanager
def _control_group() -> Iterator[Path]:
    """A control group, which counts the CPU time of Ray's workers; the kernel's rusage does not."""
    parent = next(folder for folder in CGROUPS if (folder / "cgroup.procs").is_file())
    group = parent / f"spo-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise SystemExit(f"bench-runtimes: CPU time needs a control group: {error}") from error
    try:
        yield group
    finally:
        deadline = time.monotonic() + RAY_EXIT_S
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        group.rmdir()


def _cpu_s(group: Path) -> float:
    """CPU seconds of all processes that were ever in the group."""
    if (group / "cpuacct.usage").is_file():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    lines = (group / "cpu.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6


if __name__ == "__main__":
    common.command(Options, main)
