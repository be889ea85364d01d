"""`make bench-report`: time, memory and page size of a report of many runs.

Makes synthetic run folders in two shapes, many small runs and few large ones, with the same number
of evaluation rows, and reports each in a process of its own. One program in a thousand is hostile:
long, deeply nested, or full of control characters.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from pydantic import PositiveInt

from experiments.benchmarks import common
from experiments.benchmarks.common import ROOT, Row, row

EVALUATIONS = (0, 50, 100, 150, 200)
SEEDS = 5
SAMPLES = 10
FORMS, VARIANTS = 40, 5  # correct programs of a problem, and ways to name their variables
PROGRAM = """\
import sys

def solve(numbers, limit_{variant}):
    total_{variant} = 0
    for index_{variant}, value_{variant} in enumerate(numbers):
        if value_{variant} % {0} == index_{variant} % {1} and value_{variant} > limit_{variant}:
            total_{variant} += value_{variant} * {2}
    return total_{variant}

count, *numbers = map(int, sys.stdin.read().split())
for shift in range({3}):
    numbers = [number + shift for number in numbers]
print(solve(numbers, {4}))
"""
HOSTILE = ("(" * 60_000, "x = " + "-" * 60_000 + "1", "a = 1\n" * 10_000, "\x00\x1b\u202e" * 9_000)


@dataclass
class Options(common.Options):
    runs: PositiveInt = 1000  # of many small runs
    rows: PositiveInt = 1_000_000  # of evaluation samples, in all


def main(options: Options) -> None:
    """Measure and write `report.json`."""
    few = max(10, options.runs // 25)
    shapes = {"many small runs": (options.runs, 10), "few large runs": (few, 1)}
    rows: list[Row] = []
    for name, (runs, experiments) in shapes.items():
        with tempfile.TemporaryDirectory() as folder:
            written = write_runs(Path(folder) / "runs", runs, options.rows, experiments)
            case = f"{name}: {runs:,} runs, {written:,} rows"
            rows += measure(Path(folder) / "runs", Path(folder) / "report", case)
    common.finish("report", rows, options.out)


def measure(runs: Path, out: Path, case: str) -> list[Row]:
    """Report the runs in a new session: seconds, peak memory of its processes, size of the page."""
    start, peak = time.perf_counter(), 0.0
    command = [sys.executable, "-m", "analysis.report", f"runs={runs}", f"out={out}"]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    while child.poll() is None:
        peak = max(peak, _session_mb(child.pid))
        time.sleep(1.0)  # the kernel takes a while to sum up a process's memory
    if child.returncode:
        raise SystemExit(f"the report of {runs} ended with {child.returncode}")
    seconds, page = time.perf_counter() - start, (out / "report.html").stat().st_size / 1e6
    costs = (("wall time", seconds, "s"), ("peak memory", peak, "MB"), ("page", page, "MB"))
    return [row(case, measure, [value], unit) for measure, value, unit in costs]


def _session_mb(session: int) -> float:
    """Proportional memory of all processes of a session: shared pages count once."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            if os.getsid(int(process.name)) == session:
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(int(x.split()[1]) * 1024 for x in lines if x.startswith("Pss:"))
    return total / 1e6


# Synthetic run folders


def programs(problem: int) -> list[str]:
    """FORMS × VARIANTS programs that parse. Variants of a form differ only in names."""
    forms = np.random.default_rng(problem).integers(2, 90, (FORMS, 5)).tolist()
    return [PROGRAM.format(*each, variant=name) for each in forms for name in range(VARIANTS)]


def evaluations(random: np.random.Generator, pools: np.ndarray, skill: float) -> pd.DataFrame:
    """evals.parquet of a run. `pools` (problems, programs): the texts to choose from."""
    index = pd.MultiIndex.from_product(
        [EVALUATIONS, range(len(pools)), range(SAMPLES)], names=["step", "problem", "sample"]
    )
    table = index.to_frame(index=False)
    step, problem, rows = table["step"].to_numpy(), table["problem"].to_numpy(), len(table)
    right = random.random(rows) < 1 / (1 + np.exp(2 - skill * step / 200 - (problem % 7 - 3) / 2))
    program = pools[problem, (random.random(rows) ** 2 * pools.shape[1]).astype(int)]
    for place in np.flatnonzero(random.random(rows) < 0.001):
        program[place], right[place] = HOSTILE[place % len(HOSTILE)], place % 2
    wrong = random.choice(["WRONG_ANSWER", "RUNTIME_ERROR", "TIME_LIMIT"], rows)
    return table.assign(
        problem=[f"made/{number:04d}" for number in problem],
        verdict=np.where(right, "ACCEPTED", wrong),
        passed=np.where(right, 8, 3),
        total=8,
        program=program,
        tokens=120,
        entropy=0.5,
        truncated=False,
        difficulty=np.array(["easy", "medium", "hard"])[problem % 3],
    )


def metrics(random: np.random.Generator) -> pd.DataFrame:
    """metrics.parquet of a run."""
    step = np.arange(1, EVALUATIONS[-1] + 1)
    columns = {"step": step, "reward_mean": random.random(len(step)), "loss": 0.1, "entropy": 0.5}
    slopes: dict[str, float] = {"budget/generated_tokens": 4000, "budget/judged_programs": 128}
    slopes |= {"budget/optimiser_steps": 1, "time/total_s": 9.0, "eval/kl_ref": 0.02}
    phases = ("generate", "judge", "reference", "train", "sync", "evaluate")
    slopes |= {f"time/{phase}_s": random.random() for phase in phases}
    columns |= {name: step * slope for name, slope in slopes.items()}
    return pd.DataFrame(columns | {"memory/peak_mb": 900.0})


def write_runs(root: Path, runs: int, rows: int, experiments: int) -> int:
    """Write run folders of `experiments` comparisons; return their number of evaluation rows."""
    problems = max(2, rows // runs // len(EVALUATIONS) // SAMPLES)
    pools = np.array([programs(problem) for problem in range(problems)], dtype=object)
    prompts = pd.DataFrame(
        {"problem": f"made/{number:04d}", "prompt": f"Problem {number}. " * 60}
        for number in range(problems)
    )
    groups, written = max(2, runs // experiments // SEEDS), 0
    cells = product(range(experiments), range(groups), range(SEEDS))
    for number, (experiment, group, seed) in enumerate(cells):
        name, algorithm = f"made-{experiment}", f"algo{group}"
        folder = root / name / f"{algorithm}-s{seed}"
        folder.mkdir(parents=True)
        random = np.random.default_rng([number, 1])
        table = evaluations(random, pools, 2 + group / groups)
        table.to_parquet(folder / "evals.parquet")
        metrics(random).to_parquet(folder / "metrics.parquet")
        prompts.to_parquet(folder / "problems.parquet")
        config = {"name": name, "seed": seed, "algo": {"name": algorithm}, "task": {"name": "made"}}
        config["eval"] = {"samples": SAMPLES, "k": [1, 5, 10]}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        info = {"status": "finished", "seed": seed, "algo": algorithm, "data_hash": "made"}
        (folder / "run.json").write_text(json.dumps(info))
        written += len(table)
    return written


if __name__ == "__main__":
    common.command(Options, main)
