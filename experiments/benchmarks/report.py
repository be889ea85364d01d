"""What a report of many runs costs: seconds, memory, and the size of its page.

`make bench-report`, or `python -m experiments.benchmarks.report [--runs N] [--rows N]`. Makes
synthetic run folders in two shapes, many small runs and few large ones, of so many evaluation rows
in all, and reports each in a process of its own. Of the programs one in a thousand is hostile:
long, deeply nested, or full of control characters.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from rich.console import Console
from rich.table import Table

from experiments.benchmarks.rows import row, save

ROOT = Path(__file__).resolve().parents[2]
EVALUATIONS = (0, 50, 100, 150, 200)
SEEDS = 5
SAMPLES = 10
FORMS, WRITINGS = 40, 5  # right programs of a problem, and ways to write each
PROGRAM = """\
import sys

def solve(numbers, {limit}):
    {total} = 0
    for {index}, {value} in enumerate(numbers):
        if {value} % {a} == {index} % {b} and {value} > {limit}:
            {total} += {value} * {c}
        elif {value} < -{limit}:
            {total} -= 1
    return {total}

count, *numbers = map(int, sys.stdin.read().split())
for shift in range({d}):
    numbers = [number + shift for number in numbers]
print(solve(numbers, {e}))
"""
HOSTILE = ("(" * 60_000, "x = " + "-" * 60_000 + "1", "a = 1\n" * 10_000, "\x00\x1b\u202e" * 9_000)


def programs(problem: int) -> list[str]:
    """FORMS × WRITINGS programs that parse; those of a form differ in names alone."""
    found = []
    for form in range(FORMS):
        random = np.random.default_rng([problem, form])
        numbers = dict(zip("abcde", (random.integers(2, 50, 5) + form).tolist(), strict=True))
        for writing in range(WRITINGS):
            names = {name: f"{name}_{writing}" for name in ("limit", "total", "index", "value")}
            found.append(PROGRAM.format(**numbers, **names))
    return found


def evaluations(random: np.random.Generator, pools: list[list[str]], skill: float) -> pd.DataFrame:
    """All rows of evals.parquet of a run."""
    problems = len(pools)
    step = np.repeat(EVALUATIONS, problems * SAMPLES)
    problem = np.tile(np.repeat(np.arange(problems), SAMPLES), len(EVALUATIONS))
    rate = 1 / (1 + np.exp(2 - skill * step / 200 - (problem % 7 - 3) / 2))
    right = random.random(len(step)) < rate
    drawn = (random.random(len(step)) ** 2 * FORMS * WRITINGS).astype(int)
    text = [pools[p][i] for p, i in zip(problem, drawn, strict=True)]
    for place in np.flatnonzero(random.random(len(step)) < 0.001):
        text[place], right[place] = HOSTILE[place % len(HOSTILE)], place % 2
    wrong = np.array(["WRONG_ANSWER", "RUNTIME_ERROR", "TIME_LIMIT"])[
        random.integers(3, size=len(step))
    ]
    return pd.DataFrame(
        {
            "step": step,
            "problem": np.char.add("made/", np.char.zfill(problem.astype(str), 4)),
            "sample": np.tile(np.arange(SAMPLES), problems * len(EVALUATIONS)),
            "verdict": np.where(right, "ACCEPTED", wrong),
            "passed": np.where(right, 8, 3),
            "total": 8,
            "program": text,
            "tokens": 120,
            "entropy": 0.5,
            "truncated": False,
            "difficulty": np.array(["easy", "medium", "hard"])[problem % 3],
        }
    )


def metrics(random: np.random.Generator) -> pd.DataFrame:
    """metrics.parquet of a run."""
    step = np.arange(1, EVALUATIONS[-1] + 1)
    columns = {"step": step, "reward_mean": random.random(len(step)), "loss": 0.1, "entropy": 0.5}
    spent = {"generated_tokens": 4000, "judged_programs": 128, "optimiser_steps": 1}
    columns |= {f"budget/{name}": step * each for name, each in spent.items()}
    phases = ("generate", "judge", "reference", "train", "sync", "evaluate", "total")
    columns |= {f"time/{phase}_s": step * random.random() for phase in phases}
    columns["time/total_s"] = step * 9.0
    return pd.DataFrame(columns | {"memory/peak_mb": 900.0, "eval/kl_ref": step / 50})


def write_runs(root: Path, runs: int, rows: int, experiments: int) -> int:
    """Run folders of `experiments` comparisons → their rows in all."""
    problems = max(2, rows // runs // len(EVALUATIONS) // SAMPLES)
    pools = [programs(problem) for problem in range(problems)]
    asked = [{"problem": f"made/{p:04d}", "prompt": f"Problem {p}. " * 60} for p in range(problems)]
    groups, written = max(2, runs // experiments // SEEDS), 0
    for number in range(experiments * groups * SEEDS):
        experiment, rest = divmod(number, groups * SEEDS)
        group, seed = divmod(rest, SEEDS)
        folder = root / f"made-{experiment}" / f"algo{group}-s{seed}"
        folder.mkdir(parents=True)
        random = np.random.default_rng([number, 1])
        table = evaluations(random, pools, 2 + group / groups)
        table.to_parquet(folder / "evals.parquet")
        metrics(random).to_parquet(folder / "metrics.parquet")
        pd.DataFrame(asked).to_parquet(folder / "problems.parquet")
        config = {"name": folder.parent.name, "seed": seed, "algo": {"name": f"algo{group}"}}
        config |= {"task": {"name": "made"}, "eval": {"samples": SAMPLES, "k": [1, 5, 10]}}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        info = {"status": "finished", "seed": seed, "algo": f"algo{group}", "data_hash": "made"}
        (folder / "run.json").write_text(json.dumps(info))
        written += len(table)
    return written


_MEASURES = (("wall time", "s"), ("peak memory", "MB"), ("page", "MB"))
EVERY = 1.0  # seconds between two looks at the memory, each of which takes the kernel a while


def measured(runs: Path, out: Path) -> tuple[str, ...]:
    """A report in processes of its own: seconds, their peak memory together in MB, page in MB."""
    begun, peak = time.perf_counter(), 0
    command = [sys.executable, "-m", "analysis.report", f"runs={runs}", f"out={out}"]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    while child.poll() is None:
        peak = max(peak, held(child.pid))
        time.sleep(EVERY)
    if child.returncode:
        raise SystemExit(f"the report of {runs} ended with {child.returncode}")
    seconds = time.perf_counter() - begun
    page = (out / "report.html").stat().st_size / 1e6
    return f"{seconds:.0f}", f"{peak / 1e6:,.0f}", f"{page:.1f}"


def held(session: int) -> int:
    """Bytes that the processes of a session hold together, what several share counted once."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if os.getsid(int(process.name)) != session:
                continue
            lines = (process / "smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table; the synthetic folders are removed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args(argv)
    heads = (
        "",
        "runs",
        "rows",
        "seconds",
        "peak memory, MB",
        "page, MB",
    )
    table, found = Table(*heads), []
    shapes = {
        "many small runs": (options.runs, 10),
        "few large runs": (max(10, options.runs // 25), 1),
    }
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, (runs, experiments)) in enumerate(shapes.items()):
            root = Path(folder) / str(i)
            rows = write_runs(root / "runs", runs, options.rows, experiments)
            counts = (f"{runs:,}", f"{rows:,}")
            figures = measured(root / "runs", root / "report")
            table.add_row(name, *counts, *figures)
            case = f"{name}: {runs:,} runs, {rows:,} rows"
            told = zip(_MEASURES, figures, strict=True)
            found += [row(case, m, [float(x.replace(",", ""))], unit) for (m, unit), x in told]
    console = Console()
    console.width = max(console.width, 100)
    console.print(table)
    print(f"written to {save('report', found)}")


if __name__ == "__main__":
    main()
