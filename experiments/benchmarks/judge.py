"""What judging costs: a test, by every way to run it, and a program, as training has them judged.

`make bench-judge`, or `python -m experiments.benchmarks.judge [--rounds N] [--out FOLDER]`. First
our backends, `docker exec`, a plain subprocess and the floor run the same programs on the same
inputs, in turn, with one worker and with two; their outputs must agree. Then the judge itself, with
all its workers, gets what training gives it (`judging/training.py`), on every backend.

`make bench-judge ARGS="--against COMMIT"` runs the second part alone, on this checkout and on that
commit in turn, and prints the ratio of the two.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from envs.sandbox.base import Job
from envs.sandbox.docker_client import connect, unavailable
from experiments.benchmarks.judging import against
from experiments.benchmarks.judging.meter import Meter
from experiments.benchmarks.judging.ways import Way, ways
from experiments.benchmarks.judging.workload import large, small

if TYPE_CHECKING:
    import pandas as pd


def measure(way: Way, jobs: Sequence[Job], repeats: int, meter: Meter) -> tuple[dict, list]:
    """One measurement: what it cost, and the outputs of each pass."""
    before, start = meter.read(), time.perf_counter()
    passes = [way.run(jobs) for _ in range(repeats)]
    wall, after = time.perf_counter() - start, meter.read()
    row = {
        "tests": repeats * sum(len(job.inputs) for job in jobs),
        "wall_s": wall,
        "cpu_s": after.all_s - before.all_s,
        "host_cpu_s": after.host_s - before.host_s,
        "engine_cpu_s": after.engine_s - before.engine_s,
    }
    return row, passes


def run(rounds: int, docker: bool) -> pd.DataFrame:
    """All measurements: a row per round, workload, number of workers, and way."""
    import pandas as pd

    workloads = {"small": small(), "10 MB": large()}
    expected: dict[str, list] = {}
    meter = Meter(connect() if docker else None)
    opened = {workers: ways(workers, docker) for workers in (1, 2)}
    contests = list(product(range(rounds), workloads, opened))
    rows = []
    try:
        for contestants in opened.values():
            for way in contestants.values():
                way.run(workloads["small"][:1])  # to warm up
        for number, workload, workers in contests:
            for name, way in opened[workers].items():
                row, passes = measure(way, workloads[workload], way.repeats[workload], meter)
                right = expected.setdefault(workload, passes[0])
                if any(outputs != right for outputs in passes):
                    raise RuntimeError(f"{name} gives other outputs than the first way")
                where = {"round": number, "workload": workload, "workers": workers, "way": name}
                rows.append(where | row)
                cost = 1000 * row["cpu_s"] / row["tests"]
                print(f"round {number}  {workload:5}  {workers}  {name:11}  {cost:7.2f} ms a test")
    finally:
        for contestants in opened.values():
            for way in contestants.values():
                way.close()
    return pd.DataFrame(rows)


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Per workload, workers and way, medians over rounds.

    The ratios, to the floor and to `docker exec`, are taken within each round, because load on the
    machine comes and goes between rounds.
    """
    keys = ["workload", "workers", "way"]
    table = table.set_index(["round", *keys])
    figures = table[["cpu_s", "host_cpu_s", "engine_cpu_s"]].div(table["tests"], axis=0) * 1000
    figures.columns = ["cpu_ms", "host_cpu_ms", "engine_cpu_ms"]
    rate = table["tests"] / table["wall_s"] / table.index.get_level_values("workers")
    figures["tests_per_s_and_worker"] = rate
    figures["tests_per_cpu_s"] = 1000 / figures["cpu_ms"]
    cost, rate = figures["cpu_ms"].unstack("way"), rate.unstack("way")
    figures["cpu_to_floor"] = cost.div(cost["floor"], axis=0).stack()
    if "docker exec" in cost:
        figures["exec_cpu_to_it"] = (1 / cost.div(cost["docker exec"], axis=0)).stack()
        figures["times_exec_rate"] = rate.div(rate["docker exec"], axis=0).stack()
    return figures.groupby(keys, sort=False).median().reset_index()


def plot(summary: pd.DataFrame, path: Path) -> None:
    """CPU time per test by way, a panel per workload, a bar per number of workers."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    workloads = summary["workload"].unique()
    size = (5 * len(workloads), 3.5)
    figure, axes = plt.subplots(1, len(workloads), figsize=size, squeeze=False)
    for axis, workload in zip(axes[0], workloads, strict=True):
        part = summary[summary["workload"] == workload]
        bars = part.pivot(index="way", columns="workers", values="cpu_ms").reindex(
            part["way"].unique()
        )
        bars.plot.barh(ax=axis, logx=True, legend=workload == workloads[0])
        axis.set(xlabel="CPU ms per test (log)", ylabel="", title=f"{workload} tests")
        axis.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def write(out: Path, name: str, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    """Two files, and the summary on the screen."""
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / f"{name}rounds.csv", index=False)
    summary.to_csv(out / f"{name}summary.csv", index=False)
    print(f"\n{summary.round(2).to_string(index=False)}\n\nwritten to {out}")


def main() -> None:
    """Measure, print, write `rounds.csv`, `summary.csv` and `cpu.png`, and the same of training."""
    parser = argparse.ArgumentParser(description="Benchmark the ways of judging.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench/judge"))
    parser.add_argument("--against", metavar="COMMIT", help="compare with that commit's judge")
    backends = {"nargs": "+", "default": against.BACKENDS, "choices": against.BACKENDS}
    parser.add_argument("--backends", **backends, help="of the judge")
    arguments = parser.parse_args()
    reason = unavailable()
    if reason:
        print(f"without the Docker half: {reason}")
    if arguments.against is None:
        table = run(arguments.rounds, docker=reason is None)
        summary = summarise(table)
        write(arguments.out, "", table, summary)
        plot(summary, arguments.out / "cpu.png")
    table = against.run(arguments.rounds, arguments.against, arguments.backends)
    if table.empty:
        sys.exit("this machine has none of these backends: make doctor says how to get them")
    write(arguments.out, "training-", table, against.summarise(table))


if __name__ == "__main__":
    main()
