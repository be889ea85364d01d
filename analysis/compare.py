"""Compare two groups of runs: their paired differences, with intervals.

    python -m analysis.compare study=outputs/study-mini a=spo b=ppo
    python -m analysis.compare a='outputs/x/spo-*' b='outputs/x/ppo-*'

With `study=`, the numbers are those of the study's report. Without it they are those of a report of
these two groups alone: the spread over seeds is then estimated from fewer groups, so intervals
differ from those of a report of more groups.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from analysis.load.run_folders import RunError
from envs.command_line import print_help, quiet_when_unread, wants_help
from envs.command_line import parse_arguments

if TYPE_CHECKING:
    from rich.table import Table

    from analysis.comparison import Comparison
    from analysis.metrics.evaluated_models import EvaluatedModel
    from analysis.stats.differences import PairedDifference
    from analysis.stats.named_pairs import ContrastTest

HELP = """\
Compare two groups of runs: paired differences on the seeds and problems of both.

  python -m analysis.compare study=FOLDER a=ARM b=ARM [control=ARM] [wish=0.05] [margin=0.03]
  python -m analysis.compare a=WHERE b=WHERE [wish=0.05] [margin=0.03]

Two arms of a study get the numbers of its report: the spread over seeds is moderated over all arms,
and p-values are corrected for all pairs. Without study= both rest on these two groups alone, so
intervals differ from those of a report of more groups.
"""


@dataclass
class Options:
    """The command line."""

    # an arm of the study; without study=, folders or quoted glob patterns, separated by commas,
    # whose runs differ only in the seed
    a: str
    b: str  # the same of the other group
    study: Path | None = None  # the output folder of a study that a and b are arms of; or packed
    # a target difference: how many seeds, samples or problems would detect it
    wish: Annotated[float, Field(gt=0, lt=1)] = 0.05
    # a difference in pass@k up to which a and b are equal, named before the runs; null: none, or
    # that of a packed study
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    # a or b, if the study's report compares each other arm with it; null: that of a packed study
    control: str | None = None


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code: 0 done, 1 bad runs, 2 bad options or no pair."""
    if wants_help(arguments):
        print_help(Options, HELP)
        return 0
    try:
        options = parse_arguments(Options, arguments)
        check(options)
    except ValueError as error:
        print(f"error: {error} (see --help)", file=sys.stderr)
        return 2
    try:
        comparison = compared(options)
        if not any(pair.seeds for pair in comparison.pairs):
            print(f"error: {nothing_shared(comparison)}", file=sys.stderr)
            return 2
        print_comparison(comparison, options.wish)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def check(options: Options) -> None:
    """Raise ValueError for options that contradict each other."""
    if options.study is not None and options.a == options.b:
        raise ValueError(f"b={options.b}: the same arm as a; give another")
    if options.control is not None and options.study is None:
        raise ValueError(f"control={options.control}: only with study=FOLDER")
    if options.control not in (None, options.a, options.b):
        raise ValueError(f"control={options.control}: must be a={options.a} or b={options.b}")


def compared(options: Options) -> Comparison:
    """Return the comparison that the command line names. Raises RunError for unusable runs."""
    from analysis.comparison import by_themselves, within_study

    if options.study is None:
        return by_themselves(options.a, options.b, options.margin)
    return within_study(options.study, options.a, options.b, options.margin, options.control)


def nothing_shared(comparison: Comparison) -> str:
    """Say which seeds, or else which problems, two groups that cannot be paired have."""
    a, b = comparison.models
    if not set(a.seeds) & set(b.seeds):
        what = "seed"
        theirs = [", ".join(map(str, model.seeds)) for model in (a, b)]
    else:
        what = "problem with the same seed"
        theirs = [_extent(model) for model in (a, b)]
    return (
        f"no {what} is common to {a.label} and {b.label}, so there is no paired difference: "
        f"a has {theirs[0]}; b has {theirs[1]}; give runs of the same problems and seeds"
    )


def _extent(model: EvaluatedModel) -> str:
    """Return a group's problems as their first and last name."""
    names = sorted({name for samples in model.samples for name in samples["problem"].unique()})
    return f"{names[0]} to {names[-1]}"


def print_comparison(comparison: Comparison, target: float) -> None:
    """Print a comparison.

    `target` is a difference for which the needed seeds, samples and problems are printed. With a
    margin, each pass@k has an answer: above, below, equal within the margin, not decided.
    """
    from rich.console import Console

    from analysis.report.render import records
    from analysis.stats.power import power_table

    models, pairs, ks = comparison.models, comparison.pairs, comparison.ks
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)
    console.print(difference_table(comparison))
    console.print(comparison.basis, markup=False)
    for pair in pairs:
        if pair.equal_p == pair.equal_p:
            console.print(answer_sentence(pair), markup=False)
    for claim in comparison.claims:
        console.print(claim_sentence(claim), markup=False)
    for row in records(power_table(models, pairs, target)):
        if row["metric"] in (f"pass@{ks[0]}", f"pass@{ks[-1]}"):
            console.print(power_sentence(row), markup=False)
    for sentence in comparison.notes:
        console.print(f"note: {sentence}", markup=False)


def difference_table(comparison: Comparison) -> Table:
    """Return a row per metric: both means, their difference, P(a better), and p-values."""
    from rich import box
    from rich.table import Table

    from analysis.metrics.definitions import TITLES
    from analysis.report.headline import format_difference
    from analysis.report.render import number
    from analysis.stats.differences import mean_score

    table = Table(box=box.SIMPLE_HEAD)
    models, p = comparison.models, comparison.p
    names = [model.label for model in models]
    difference = "a − b, 95 % interval"
    headings = ("", *names, difference, "P(a better)", *p, "seeds", "problems")
    for heading in headings:
        whole = heading == difference
        table.add_column(heading, justify="right" if heading else "left", no_wrap=whole)
    for i, pair in enumerate(comparison.pairs):
        if pair.seeds:
            table.add_row(
                TITLES.get(pair.metric, pair.metric),
                *(number(mean_score(model, pair.metric)) for model in models),
                format_difference(pair),
                number(pair.improvement, 2),
                *(number(family[i]) for family in p.values()),
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


def claim_sentence(claim: ContrastTest) -> str:
    """State what the test of a study's claim with a margin found."""
    from analysis.report.named_ahead import contrast_phrase
    from analysis.stats.differences import UNDECIDED

    if claim.answer == UNDECIDED:
        found = f"not decided whether {claim.pair.a} is less than {claim.margin:g} below "
        found += claim.pair.b
    else:
        found = contrast_phrase(claim)
    return f"{claim.pair.metric}, claimed before the runs: {found} (p {claim.p:.3f})."


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
