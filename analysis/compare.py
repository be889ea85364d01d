"""Compare two groups of runs: their paired differences, the same numbers as the report's.

python -m analysis.compare a='outputs/study/spo-*' b='outputs/study/ppo-*'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from analysis.load.groups import Group, group_runs
from analysis.load.run_folders import RunError, find_runs, load_run
from envs.command_line.command_help import print_help, quiet_when_unread, wants_help
from envs.command_line.config_parsing import parse_arguments

if TYPE_CHECKING:
    from rich.table import Table

    from analysis.metrics.evaluated_models import EvaluatedModel
    from analysis.stats.differences import PairedDifference

HELP = """\
Compare two groups of runs: paired differences on the seeds and problems of both.

  python -m analysis.compare a=WHERE b=WHERE [wish=0.05] [margin=0.03]

"""


@dataclass
class Options:
    """The command line."""

    # folders or quoted glob patterns, separated by commas; its runs differ only in the seed
    a: str
    b: str  # the same of the other group
    # a target difference: how many seeds, samples or problems would detect it
    wish: Annotated[float, Field(gt=0, lt=1)] = 0.05
    # a difference in pass@k up to which a and b are equal, named before the runs; null: none
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code: 0 done, 1 bad runs, 2 bad command line."""
    if wants_help(arguments):
        print_help(Options, HELP)
        return 0
    try:
        options = parse_arguments(Options, arguments)
    except ValueError as error:
        print(f"error: {error} (see --help)", file=sys.stderr)
        return 2
    try:
        print_comparison(options.a, options.b, options.wish, options.margin)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def print_comparison(a: str, b: str, target: float, margin: float | None = None) -> None:
    """Print the comparison of two groups.

    `target` is a difference for which the needed seeds, samples and problems are printed. With a
    margin, each pass@k has an answer: above, below, equal within the margin, not decided. Raises
    RunError if the runs of a or b are not one group with an evaluation after training.
    """
    from rich.console import Console

    from analysis.metrics.definitions import further_metrics, reported_metrics
    from analysis.metrics.evaluated_models import common_ks, evaluated_models
    from analysis.report.caveats import caveats
    from analysis.report.render import records
    from analysis.stats.differences import paired_differences
    from analysis.stats.equivalence import with_equality
    from analysis.stats.power import power_table

    groups = [_load_group("a", a), _load_group("b", b)]
    ks, notes = common_ks([run for group in groups for run in group.runs])
    models = [model for model in evaluated_models(groups, ks) if not model.is_base]
    if len(models) < 2:
        raise RunError("a and b: both need an evaluation after training; choose longer runs")
    temperatures = sorted({t for model in models for t in model.temperatures})
    metrics = (*reported_metrics(ks), *further_metrics(ks, temperatures))
    pairs = paired_differences(models, [metric.name for metric in metrics])
    pairs = with_equality(pairs, margin)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(difference_table(models, pairs))
    for pair in pairs:
        if pair.equal_p == pair.equal_p:
            console.print(answer_sentence(pair), markup=False)
    for row in records(power_table(models, pairs, target)):
        if row["metric"] in (f"pass@{ks[0]}", f"pass@{ks[-1]}"):
            console.print(power_sentence(row), markup=False)
    for sentence in (*caveats(groups, models), *notes):
        console.print(f"note: {sentence}", markup=False)


def _load_group(key: str, patterns: str) -> Group:
    """Return the single group of these runs, with `key` before its label."""
    paths = find_runs(filter(None, patterns.split(",")), key)
    groups = group_runs([load_run(path) for path in paths])
    if len(groups) > 1:
        labels = ", ".join(group.label for group in groups[:4])
        raise RunError(
            f"{key}={patterns}: {len(groups)} groups ({labels}); narrow it to one of them"
        )
    return replace(groups[0], label=f"{key} ({groups[0].label})")


def difference_table(models: Sequence[EvaluatedModel], pairs: Sequence[PairedDifference]) -> Table:
    """Return a row per metric: both means, their difference, and P(a better)."""
    from rich import box
    from rich.table import Table

    from analysis.metrics.definitions import TITLES
    from analysis.report.headline import format_difference
    from analysis.report.render import number
    from analysis.stats.differences import mean_score

    table = Table(box=box.SIMPLE_HEAD)
    a, b = models
    headings = ("", a.label, b.label, "a − b, 95 % interval", "P(a better)", "seeds", "problems")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    for pair in pairs:
        if pair.seeds:
            table.add_row(
                TITLES.get(pair.metric, pair.metric),
                *(number(mean_score(model, pair.metric)) for model in models),
                format_difference(pair),
                number(pair.improvement, 2),
                str(pair.seeds),
                str(pair.problems),
            )
    return table


def answer_sentence(pair: PairedDifference) -> str:
    """State the answer to a − b within the margin, with the p-values of both tests."""
    from analysis.report.named_ahead import decision_needs
    from analysis.stats.differences import EQUAL, UNDECIDED

    answer = pair.answer
    if answer == EQUAL:
        answer = f"equal within {pair.margin:g}"
    elif answer == UNDECIDED:
        answer = f"not decided within {pair.margin:g}, {decision_needs([pair])}"
    else:
        answer = f"a is {answer} b"
    tests = f"different: p {pair.adjusted_p:.3f}, equal: p {pair.equal_p:.3f}"
    return f"{pair.metric}: {answer} ({tests})."


def power_sentence(row: dict[str, Any]) -> str:
    """State the detectable difference in one metric, and the resources to detect `wish`.

    Where the groups differ by the same on every seed and problem there is no noise to tell it from.
    """
    if row["smallest_difference"] < 1e-9:
        return (
            f"{row['metric']}: a and b differ by the same on every seed and problem, so nothing is "
            "known of the noise, nor of what could have been detected."
        )
    needed = [
        f"{row[f'{resource}_needed']:,.0f} {resource}"
        for resource in ("seeds", "samples", "problems")
        if row[f"{resource}_needed"] < float("inf")
    ]
    takes = " or ".join(needed) if needed else "more than one of seeds, samples and problems"
    return (
        f"{row['metric']}: a true difference of {row['smallest_difference']:.3f} would have been "
        f"detected in most such comparisons; detecting {row['wish']:g} takes {takes}."
    )


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
