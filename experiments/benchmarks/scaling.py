"""`make scaling`: what the model of the loop says of larger worlds, beside what was measured.

    python -m experiments.benchmarks.scaling [--runs FOLDER ...] [--page docs/results/scaling.md]

Writes the page's tables, between their markers, and its figure beside it. Without `--runs` the
table of runs stays as it is: their times are this machine's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.report.markdown import table
from experiments.benchmarks import published
from experiments.benchmarks.pipeline import Course, Loop, fixed, lognormal, recorded, simulate
from experiments.errors import UserError

PARTS = ("generate", "judge", "reference", "train", "sync")
PROGRAM_S = (0.005, 1.0, 10.0)  # CPU of a program; the first is measured here, the others chosen
BATCHES = 20  # of each way of the ladder; weights go over twice where they do every ten
PAGE = Path("docs/results/scaling.md")
RUNS_HEAD = (
    "run",
    "recorded, s a step",
    "foretold from its first half",
    "error",
    "parts of the same steps",
    "error",
    "lag 1, one core",
    "lag 1, two cores",
)


@dataclass(frozen=True)
class Run:
    """A recorded run: wall seconds of each step, by part; `waited` is the loop's for its judge."""

    name: str
    parts: dict[str, np.ndarray]
    total: np.ndarray  # without evaluation
    waited: np.ndarray
    pieces: int
    overlap: bool


def read(folder: Path) -> Run:
    """Raises UserError where there is no run to read."""
    import pandas as pd
    import yaml

    try:
        table = pd.read_parquet(folder / "metrics.parquet")
        config = yaml.safe_load((folder / "config.yaml").read_text())
    except OSError:
        raise UserError(f"--runs {folder}: no run folder with metrics.parquet") from None
    if len(table) < 4:
        raise UserError(f"--runs {folder}: {len(table)} steps; give a run of 4 or more")
    spent = table.filter(like="time/").diff().iloc[1:].to_numpy()
    column = dict(zip(table.filter(like="time/").columns, spent.T, strict=True))
    return Run(
        name=", ".join([folder.name, *_told(config)]),
        parts={part: column[f"time/{part}_s"] for part in PARTS},
        total=column["time/total_s"] - column["time/evaluate_s"],
        waited=column.get("time/waited_judge_s", column["time/judge_s"]),
        pieces=config["train"]["prompts"],
        overlap=config.get("runtime", {}).get("overlap", False),
    )


def _told(config: dict[str, Any]) -> Iterator[str]:
    """What of a run's settings bears on its time, where it is not the default of a plain run."""
    for key, plain in (("lag", 0), ("sync_every", 1), ("offline_share", 0.0)):
        if config["train"].get(key, plain) != plain:
            yield f"{key}={config['train'][key]}"
    if config.get("runtime", {}).get("overlap", False):
        yield "overlap"


def loop_of(run: Run, steps: slice, **others: Any) -> Loop:
    """The loop of one process from the parts that were recorded in `steps`.

    A batch's problems are written one after the other; what a problem takes is its share.
    """
    part = {name: seconds[steps] for name, seconds in run.parts.items()}
    return Loop(
        recorded(part["generate"] / run.pieces),
        recorded(part["judge"] / run.pieces),
        recorded(part["reference"] + part["train"]),
        recorded(part["sync"]),
        pieces=run.pieces,
        overlap=others.pop("overlap", run.overlap),
        **others,
    )


def of_runs(folders: Sequence[Path]) -> str:
    """Second halves of runs, foretold from the parts of their first halves; and what may come."""
    rows = []
    for run in map(read, folders):
        middle = len(run.total) // 2
        early, late, real = slice(0, middle), slice(middle, None), run.total[middle:].mean()
        told = simulate(loop_of(run, early), 200)
        same = simulate(loop_of(run, late), 200)
        apart = [
            simulate(loop_of(run, late, overlap=True, lag=1, cores=n), 200).step_s for n in (1, 2)
        ]
        cells = [f"{real:.2f}"]
        for course in (told, same):
            cells += [f"{course.step_s:.2f}", f"{error(course.step_s, real)}"]
        rows.append([run.name, *cells, *(f"{seconds:.2f}" for seconds in apart)])
        if run.overlap:
            rows.append(_waited(run, same, late))
    return table(RUNS_HEAD, rows)


def _waited(run: Run, course: Course, steps: slice) -> list[str]:
    """The loop's wait for its judge, beside the simulated one, as a row."""
    real = run.waited[steps].mean()
    foretold = course.waited_judged / len(course.ends)
    apart = f"{foretold - real:+.2f} s"
    return ["… its wait for the judge", f"{real:.2f}", "", "", f"{foretold:.2f}", apart, "", ""]


def of_published(spread: float) -> str:
    """Published seconds a step beside the model's; which were fitted."""
    rows: list[tuple[str, float, float, str]] = []
    for gpus, told in published.COLOCATED.items():
        how = "its mean is fitted" if gpus == 128 else "foretold from 128 GPUs"
        model = published.step_s(published.colocated(spread, gpus))
        rows.append((f"verl, {gpus} GPUs, all write, then all train", told.step, model, how))
    for staleness, told in published.STALENESS.items():
        how = "its spread is fitted" if not staleness else "foretold"
        model = published.step_s(published.streamed(spread, told, staleness))
        rows.append((f"verl, 64 + 64 GPUs, staleness {staleness}", told.step, model, how))
    for gpus in (32, 64):
        told = published.HALVES[gpus]
        model = published.step_s(published.streamed(spread, told, 0.5, of=gpus))
        name = f"verl, {gpus // 2} + {gpus // 2} GPUs, staleness 0.5"
        how = "foretold; its published parts exceed the step" if gpus == 32 else "foretold"
        rows.append((name, told.step, model, how))
    for engine, one in published.ONE_STEP.items():
        loop = Loop(fixed(one.write), fixed(0), fixed(one.train), fixed(one.rest), lag=1)
        name = f"verl, one step of overlap, 4 + 12 GPUs, {engine}"
        rows.append((name, one.overlapped, simulate(loop, 20).step_s, "from its own parts"))
    return table(
        ["", "published, s a step", "the model", "error", ""],
        [
            [name, f"{real:.0f}", f"{model:.0f}", error(model, real), how]
            for name, real, model, how in rows
        ],
    )


def of_order(spread: float) -> str:
    """The same work in four ways, and what others have published of each."""
    steps = {name: simulate(loop, BATCHES) for name, loop in published.ladder(spread).items()}
    first = next(iter(steps.values())).step_s
    said = (
        "1",
        "1.23 and 1.44 (verl)",
        "1.85 (SPO; not confirmed)",
        "2.27 and 2.77 (AReaL), 1.93 to 2.68 (verl)",
    )
    rows = [
        [
            name,
            f"{course.step_s:.0f}",
            f"{first / course.step_s:.2f}",
            f"{np.mean(course.lags):.1f}",
            theirs,
        ]
        for (name, course), theirs in zip(steps.items(), said, strict=True)
    ]
    return table(["", "s a step", "the model", "lag, mean", "published"], rows)


def error(model: float, real: float) -> str:
    return f"{round(100 * (model / real - 1)):+d} %".replace("+0", "0")


def draw(spread: float, file: Path) -> None:
    """Batches an hour against GPUs and judges, and seconds a step against lag."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from experiments.studies.figures import LOOK

    with plt.rc_context(LOOK):
        figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
        _against_gpus(panels[0], spread)
        _against_judges(panels[1], spread)
        _against_lag(panels[2])
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)


def _against_gpus(axes: Any, spread: float) -> None:
    sizes = sorted(published.HALVES)
    turn = [published.step_s(published.colocated(spread, n)) for n in sizes]
    halves = {
        staleness: [
            published.step_s(published.streamed(spread, published.HALVES[n], staleness))
            for n in sizes
        ]
        for staleness in (0.0, 0.5)
    }
    axes.plot(sizes, 3600 / np.array(turn), "o-", label="all in turn")
    for staleness, seconds in halves.items():
        axes.plot(sizes, 3600 / np.array(seconds), "s--", label=f"halves, staleness {staleness}")
    real = [published.COLOCATED[n].step for n in sizes], [published.HALVES[n].step for n in sizes]
    for seconds, marker in zip(real, "ox", strict=True):
        axes.plot(sizes, 3600 / np.array(seconds), marker, color="black", markersize=7)
    axes.set(title="GPUs (black: published)", xlabel="GPUs", ylabel="steps an hour", ylim=(0, None))
    axes.set_xticks(sizes)
    axes.legend()


def _against_judges(axes: Any, spread: float) -> None:
    counts = [1, 4, 16, 64, 256, 1024]
    base = published.streamed(spread, published.HALVES[128], 0.5)
    for seconds in PROGRAM_S:
        judge = lognormal(seconds * published.RESPONSES, 1.0)
        loops = [replace(base, judge=judge, judges=n) for n in counts]
        rate = [3600 / published.step_s(loop, 6) for loop in loops]
        axes.plot(counts, rate, "o-", label=f"{seconds:g} s a program")
    axes.set(title="Judges, 64 + 64 GPUs", xlabel="cores that judge", xscale="log", ylim=(0, None))
    axes.legend()


def _against_lag(axes: Any) -> None:
    lags = [0, 0.25, 0.5, 1, 2, 4]
    for spread in (0.2, published.fitted_spread(), 0.8):
        base = published.streamed(spread, published.HALVES[128], 0)
        loops = [replace(base, lag=lag * published.MINIBATCHES) for lag in lags]
        rate = [3600 / published.step_s(loop) for loop in loops]
        axes.plot(lags, rate, "o-", label=f"spread of lengths {spread:g}")
    axes.set(title="Lag, 64 + 64 GPUs", xlabel="steps that writing may be ahead", ylim=(0, None))
    axes.legend()


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between the page's markers of this name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise UserError(f"--page {page}: it has no markers <!-- {name} --> and {end}")
    page.write_text(before + begin + text + "\n" + end + after)


def main(argv: Sequence[str] | None = None) -> None:
    """Simulate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", nargs="+", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(argv)
    if not options.page.is_file():
        parser.error(f"--page {options.page}: no such file; its marked tables are written anew")
    spread = published.fitted_spread()
    tables = {"published": of_published(spread), "order": of_order(spread)}
    if options.runs:
        made = f"On {os.cpu_count()} cores; wall seconds, evaluations left out.\n"
        tables["runs"] = f"{made}\n{of_runs(options.runs)}"
    for name, text in tables.items():
        print(text, end="\n\n")
        put(options.page, name, text)
    draw(spread, options.page.with_suffix(".svg"))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
