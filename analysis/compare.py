"""Two groups of runs side by side: their paired differences, the same numbers as the report's.

python -m analysis.compare a='outputs/study/spo-*' b='outputs/study/ppo-*'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from analysis.load.run_folders import RunError, find_runs, load_run
from envs.config_parsing import parse_arguments as options_of

if TYPE_CHECKING:
    from rich.table import Table

    from analysis.metrics.evaluated_models import EvaluatedModel
    from analysis.stats.differences import PairedDifference

HELP = """\
Compare two groups of runs: paired differences on the seeds and problems of both.

  python -m analysis.compare a=WHERE b=WHERE [wish=0.05]

  a, b   folders or quoted glob patterns, separated by commas; the runs of each must
         differ in nothing but the seed
  wish   a difference to see: how many seeds, samples or problems it would take
"""


@dataclass
class Options:
    """The command line."""

    a: str
    b: str
    wish: Annotated[float, Field(gt=0, lt=1)] = 0.05


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit code: 0 done, 1 runs at fault, 2 command line at fault."""
    if any(argument in ("-h", "--help", "help") for argument in arguments):
        print(HELP)
        return 0
    try:
        options = options_of(Options, arguments)
    except ValueError as error:
        print(f"error: {error} (see --help)", file=sys.stderr)
        return 2
    try:
        show(options.a, options.b, options.wish)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def show(a: str, b: str, wish: float) -> None:
    """Print the comparison. Raises RunError where the runs are no two groups of one setting."""
    from rich.console import Console

    from analysis.metrics.definitions import reported_metrics
    from analysis.metrics.evaluated_models import common_ks, evaluated_models
    from analysis.report.caveats import caveats
    from analysis.stats.differences import paired_differences
    from analysis.stats.power import power_table

    groups = [_group(key, where) for key, where in (("a", a), ("b", b))]
    ks, notes = common_ks([run for group in groups for run in group.runs])
    ends = [stage for stage in evaluated_models(groups, ks) if stage.step > 0]
    if len(ends) < 2:
        raise RunError("a and b: both need an evaluation after training; choose runs further on")
    found = paired_differences(ends, [metric.name for metric in reported_metrics(ks)])
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table(ends, found))
    for row in power_table(ends, found, wish).to_dict("records"):
        if row["metric"] in (f"pass@{ks[0]}", f"pass@{ks[-1]}"):
            console.print(seen(row), markup=False)
    for sentence in (*caveats(groups, ends), *notes):
        console.print(f"note: {sentence}", markup=False)


def _group(key: str, where: str):  # type: ignore[no-untyped-def]
    """The one group of the runs there, its label with the key before it."""
    from dataclasses import replace

    from analysis.load.groups import group_runs

    groups = group_runs([load_run(path) for path in find_runs(filter(None, where.split(",")))])
    if len(groups) > 1:
        labels = ", ".join(group.label for group in groups[:4])
        raise RunError(f"{key}={where}: {len(groups)} groups ({labels}); narrow it to one of them")
    return replace(groups[0], label=f"{key} ({groups[0].label})")


def table(ends: Sequence[EvaluatedModel], found: Sequence[PairedDifference]) -> Table:
    """A row per metric: both means, the difference, who improves on whom how often."""
    from rich import box
    from rich.table import Table

    from analysis.metrics.definitions import TITLES
    from analysis.report.headline import signed
    from analysis.report.render import number
    from analysis.stats.tables import grid_interval

    shown = Table(box=box.SIMPLE_HEAD)
    a, b = ends
    heads = ("", a.label, b.label, "a − b, 95 % interval", "P(a better)", "seeds", "problems")
    for heading in heads:
        shown.add_column(heading, justify="right" if heading else "left")
    for one in found:
        if one.seeds:
            means = [grid_interval(end.grids.get(one.metric), one.metric).mean for end in ends]
            cells = [*map(number, means), signed(one), number(one.improvement, 2)]
            counts = (str(one.seeds), str(one.problems))
            shown.add_row(TITLES.get(one.metric, one.metric), *cells, *counts)
    return shown


def seen(row: dict[str, float]) -> str:
    """What the design could see in one metric, and what it would take to see `wish`."""
    more = [
        f"{row[f'{what}_needed']:,.0f} {what}"
        for what in ("seeds", "samples", "problems")
        if row[f"{what}_needed"] < float("inf")
    ]
    takes = " or ".join(more) if more else "more than one of seeds, samples and problems"
    return (
        f"{row['metric']}: a true difference of {row['smallest_difference']:.3f} would have been "
        f"told from 0 in most such comparisons; to see {row['wish']:g} takes {takes}."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
