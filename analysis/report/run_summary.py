"""The effect of one run: its first evaluation beside its last one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.load.run_folders import RunError, load_run

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

STAGES = ("before", "after")


@dataclass(frozen=True)
class BeforeAfter:
    """The metrics at a run's first and last evaluation.

    `table` has the columns metric (its title), before, before_low, before_high, and the same with
    after if there was more than one evaluation; intervals are 95 %, over problems. `steps` are
    those of the evaluations. `problems` and `samples` per problem are the last one's. `notes` say
    what could not be shown.
    """

    table: pd.DataFrame
    steps: list[int]
    problems: int
    samples: int
    notes: list[str]


def before_after(run_folder: str | Path) -> BeforeAfter:
    """Compare a run's first and last evaluation.

    Raises RunError if the folder is damaged or no evaluation was finished.
    """
    import pandas as pd

    from analysis.metrics.definitions import further_metrics, reported_metrics
    from analysis.metrics.evaluated_models import common_ks, samples_per_problem
    from analysis.metrics.scores import scores_at_temperatures, stack_seeds
    from analysis.stats.tables import grid_interval, interval_columns

    run = load_run(run_folder)
    if not run.evaluated_steps:
        raise RunError(f"{run.path}: no evaluation was finished, so there is nothing to compare")
    steps = sorted({run.evaluated_steps[0], run.evaluated_steps[-1]})
    ks, notes = common_ks([run])
    further = [run.further_evaluations(step) for step in steps]
    scored = scores_at_temperatures([run.evaluation(step) for step in steps], further, ks)
    by_stage = [stack_seeds((run.seed,), [scores]) for scores in scored]
    temperatures = sorted({temperature for samples in further for temperature in samples})
    rows = []
    for metric in (*reported_metrics(ks), *further_metrics(ks, temperatures)):
        row: dict[str, object] = {"metric": metric.title}
        for stage, grids in zip(STAGES, by_stage, strict=False):
            row |= interval_columns(grid_interval(grids.get(metric.name), metric.name), stage)
        rows.append(row)
    last = run.evaluation(steps[-1])
    return BeforeAfter(
        table=pd.DataFrame(rows),
        steps=steps,
        problems=int(last["problem"].nunique()),
        samples=samples_per_problem(last),
        notes=notes,
    )


def before_after_table(run_folder: str | Path) -> Table:
    """Return `before_after` as a rich table, without the metrics that have no value."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from analysis.report.render import missing, records, with_interval

    comparison = before_after(run_folder)
    stages = STAGES[: len(comparison.steps)]
    table = Table(box=box.SIMPLE_HEAD, caption=Text("\n".join(comparison.notes)))
    size = f"{comparison.problems} problems, {comparison.samples} samples each"
    table.add_column(f"{size}\n95 % intervals over problems")
    for stage, step in zip(stages, comparison.steps, strict=True):
        table.add_column(f"{stage} training\n(step {step})", justify="right")
    for row in records(comparison.table):
        if not all(missing(row[stage]) for stage in stages):
            table.add_row(row["metric"], *(with_interval(row, stage) for stage in stages))
    return table
