"""What one run changed: its first evaluation beside its last one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analysis.runs import RunError, load_run

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table


def before_after(run_folder: str | Path) -> pd.DataFrame:
    """The metrics of `analysis.metrics` at the run's first and last evaluation.

    Columns: metric (its heading), before, before_low, before_high, and the same with after, NaN if
    there was one evaluation only; intervals are 95 %, over problems. `attrs` has the `steps` of the
    evaluations, and the last one's numbers of `problems` and of `samples` per problem. Raises
    RunError if the folder is damaged or no evaluation was finished.
    """
    import pandas as pd

    from analysis.aggregate import interval_of, samples_per_problem
    from analysis.metrics import METRICS, scores

    run = load_run(run_folder)
    if not run.evaluated_steps:
        raise RunError(f"{run.path}: no evaluation was finished, so there is nothing to compare")
    steps = sorted({run.evaluated_steps[0], run.evaluated_steps[-1]})
    frames = [scores(run.evaluation(step)) for step in steps]
    rows = []
    for metric in METRICS:
        row: dict[str, object] = {"metric": metric.title}
        for i, name in enumerate(("before", "after")):
            interval = interval_of(frames[i : i + 1], metric.name)
            row |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        rows.append(row)
    table = pd.DataFrame(rows)
    last = run.evaluation(steps[-1])
    table.attrs = {
        "steps": steps,
        "problems": int(last["problem"].nunique()),
        "samples": samples_per_problem(last),
    }
    return table


def before_after_table(run_folder: str | Path) -> Table:
    """`before_after` as a rich table, without the metrics that have no value."""
    from rich import box
    from rich.table import Table

    from analysis.render import with_interval

    numbers = before_after(run_folder)
    counts = f"{numbers.attrs['problems']} problems, {numbers.attrs['samples']} samples each"
    stages = list(zip(("before", "after"), numbers.attrs["steps"], strict=False))
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(f"{counts}\n95 % intervals over problems")
    for name, step in stages:
        table.add_column(f"{name} training\n(step {step})", justify="right")
    for _, row in numbers.iterrows():
        if any(row.notna()[name] for name, _ in stages):
            table.add_row(row["metric"], *(with_interval(row, name) for name, _ in stages))
    return table


def print_before_after(run_folder: str | Path) -> None:
    """Print `before_after_table`, or in one line why there is none."""
    from rich.console import Console

    try:
        Console().print(before_after_table(run_folder))
    except RunError as error:
        print(error)
