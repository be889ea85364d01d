"""What one run changed: its first evaluation beside its last one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analysis.load.run_folders import RunError, load_run

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table


def before_after(run_folder: str | Path) -> pd.DataFrame:
    """The metrics of `analysis.metrics.definitions` at the run's first and last evaluation.

    Columns: metric (its heading), before, before_low, before_high, and the same with after where
    there was more than one evaluation; intervals are 95 %, over problems. `attrs` has the `steps`
    of the evaluations, the last one's numbers of `problems` and of `samples` per problem, and
    `notes` on what could not be shown. Raises RunError if the folder is damaged or no evaluation
    was finished.
    """
    import pandas as pd

    from analysis.metrics.definitions import reported_metrics
    from analysis.metrics.evaluated_models import common_ks, samples_per_problem
    from analysis.metrics.scores import scores, stack_seeds
    from analysis.stats.tables import grid_interval, interval_columns

    run = load_run(run_folder)
    if not run.evaluated_steps:
        raise RunError(f"{run.path}: no evaluation was finished, so there is nothing to compare")
    steps = sorted({run.evaluated_steps[0], run.evaluated_steps[-1]})
    ks, notes = common_ks([run])
    found = [stack_seeds((run.seed,), [scores(run.evaluation(step), ks)]) for step in steps]
    rows = []
    for metric in reported_metrics(ks):
        row: dict[str, object] = {"metric": metric.title}
        for name, grids in zip(("before", "after"), found, strict=False):
            row |= interval_columns(grid_interval(grids.get(metric.name), metric.name), name)
        rows.append(row)
    table = pd.DataFrame(rows)
    last = run.evaluation(steps[-1])
    table.attrs = {
        "steps": steps,
        "problems": int(last["problem"].nunique()),
        "samples": samples_per_problem(last),
        "notes": notes,
    }
    return table


def before_after_table(run_folder: str | Path) -> Table:
    """`before_after` as a rich table, without the metrics that have no value."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from analysis.report.render import with_interval

    numbers = before_after(run_folder)
    counts = f"{numbers.attrs['problems']} problems, {numbers.attrs['samples']} samples each"
    stages = list(zip(("before", "after"), numbers.attrs["steps"], strict=False))
    table = Table(box=box.SIMPLE_HEAD, caption=Text("\n".join(numbers.attrs["notes"])))
    table.add_column(f"{counts}\n95 % intervals over problems")
    for name, step in stages:
        table.add_column(f"{name} training\n(step {step})", justify="right")
    for _, row in numbers.iterrows():
        if any(row.notna()[name] for name, _ in stages):
            table.add_row(row["metric"], *(with_interval(row, name) for name, _ in stages))
    return table
