"""`make bench-runtimes`: time per trained token of `runtime=ray` and of `runtime=sync`.

Both run the bundled model on MiniContests, in turn. The time of a run of no steps is subtracted.
CPU time is the machine's, Ray's processes included, so nothing else may run on it. A small model
and small batches show most of what the actors themselves cost.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
from pydantic import PositiveInt

from experiments.benchmarks import common
from experiments.run_dir.machine import machine_cpu_s

RUN = (
    *("task=mini", "task.choose_problems=4", "model=nano", "train.prompts=4", "logger=none"),
    *("eval.every=0", "eval.samples=2", "eval.k=[1]", "eval.kl_samples=0"),
    *("engine.logprob_check_every=0", "train.checkpoint_every=0"),
    *("sandbox=embedded", "sandbox.workers=1"),
)
CASES = {"GRPO": ("algo=grpo",), "half-online SPO": ("algo=spo", "train.offline_share=0.5")}
SYNC = "sync, lag 0"
RUNTIMES = {SYNC: ("runtime=sync",), "ray, lag 10": ("runtime=ray", "train.lag=10")}


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 3
    steps: PositiveInt = 30  # of each run


def main(options: Options) -> None:
    """Measure and write `runtimes.json`."""
    rows = []
    for case, algorithm in CASES.items():
        runs = {
            name: partial(_cost_per_token, (*algorithm, *runtime), options.steps)
            for name, runtime in RUNTIMES.items()
        }
        values = common.alternate(runs, options.rounds, warm_ups=0)
        rows += common.compare(values, "ms", SYNC, prefix=f"{case}, ")
    common.finish("runtimes", rows, options.out, steps=options.steps)


def _cost_per_token(overrides: Sequence[str], steps: int, number: int) -> dict[str, float]:
    """Milliseconds per trained token, without those of a run of no steps."""
    start, _ = _cost((*overrides, "steps=0"))
    run, tokens = _cost((*overrides, f"steps={steps}"))
    return {f"{key} per trained token": 1000 * (run[key] - start[key]) / tokens for key in run}


def _cost(overrides: Sequence[str]) -> tuple[dict[str, float], int]:
    """CPU and wall seconds of a run, and the tokens it trained on."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = common.time_run((*RUN, *overrides, f"output_dir={folder}"), machine_cpu_s)
        (metrics,) = Path(folder).glob("*/*/metrics.parquet")
        return seconds, max(pd.read_parquet(metrics).get("budget/trained_tokens", [0]))


if __name__ == "__main__":
    common.command(Options, main)
