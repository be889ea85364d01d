"""Compare two groups of runs: their paired differences, with intervals.

    python -m analysis.compare study=outputs/study-front a=spo b=ppo
    python -m analysis.compare a='outputs/x/spo-*' b='outputs/x/ppo-*'

The numbers of a pair depend on what else is compared: the spread over seeds is moderated over all
groups, and p-values are corrected for all pairs. Two arms of a study have the numbers of the
study's report. Two groups by themselves have those of a report of these two alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from rich import box
from rich.console import Console
from rich.table import Table

from analysis import comparisons
from analysis.comparisons import PairedDifference
from analysis.experiment import Experiment, Plan, run_command
from analysis.findings import caveats, contrast_phrase, decision_needs, format_difference
from analysis.groups import (
    EvaluatedModel,
    Group,
    common_ks,
    evaluated_models,
    group_runs,
    join_names,
)
from analysis.intervals import RESOURCES
from analysis.metrics import TITLES
from analysis.rendering import number
from analysis.runs import RunError, find_runs, load_run, runs_of_arms
from analysis.study_frames import read_study
from analysis.tables import power_table
from envs.command_line import did_you_mean, quiet_when_unread

ALONE = (
    "The spread over seeds is estimated from these two groups alone. A report of more groups "
    "estimates it from all of them, so its intervals and p-values differ from these. Two arms of a "
    "study get the numbers of its report with study=FOLDER a=ARM b=ARM."
)
NEEDS_TRAINING = "a and b need an evaluation after training; choose longer runs"


@dataclass
class Options:
    """The command line."""

    # an arm of the study; without study=, folders or quoted glob patterns, separated by commas,
    # whose runs differ only in the seed
    a: str
    b: str  # the same of the other group
    study: Path | None = None  # the output folder of a study that a and b are arms of; or packed
    # a difference in pass@k up to which a and b are equal, named before the runs; null: none, or
    # that of a packed study
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    # a or b, if the study's report compares each other arm with it; null: that of a packed study
    control: str | None = None


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code of `run_command`; 2 also if there is no pair."""
    return run_command(Options, check_arms, compare, arguments)


def check_arms(options: Options) -> None:
    """Check a, b and the control. Raises ValueError."""
    if options.study is not None and options.a == options.b:
        raise ValueError(f"b={options.b}: the same arm as a; give another")
    if options.control is not None and options.study is None:
        raise ValueError(f"control={options.control}: only with study=FOLDER")
    if options.control not in (None, options.a, options.b):
        raise ValueError(f"control={options.control}: must be a={options.a} or b={options.b}")


def compare(options: Options) -> int:
    """Print the comparison; return 2 if a and b share no problem with the same seed."""
    if options.study is None:
        comparison = by_themselves(options.a, options.b, options.margin)
    else:
        given = options.a, options.b, options.margin, options.control
        comparison = within_study(options.study, *given)
    if not any(pair.seeds for pair in comparison.pairs):
        a, b = (", ".join(map(str, model.seeds)) for model in comparison.models)
        print(
            "error: a and b have no problem with the same seed in common, so there is no "
            f"paired difference; seeds of a: {a}; of b: {b}",
            file=sys.stderr,
        )
        return 2
    print_comparison(comparison)
    return 0


@dataclass(frozen=True)
class Comparison:
    """Groups a and b, and the difference a - b in each metric.

    `basis` says what spread and corrections rest on. `p` has the p-values of `pairs` in each family
    of tests, by its name. `claims` are the tests of a and b against a margin of the study's claims.
    """

    models: Sequence[EvaluatedModel]
    pairs: Sequence[PairedDifference]
    ks: tuple[int, ...]
    basis: str
    notes: Sequence[str]
    p: Mapping[str, Sequence[float]] = field(default_factory=dict)
    claims: Sequence[comparisons.ContrastTest] = ()


def by_themselves(a: str, b: str, margin: float | None) -> Comparison:
    """Compare the runs at two lists of folders or glob patterns.

    Raises RunError if the runs of a or b are not one group with an evaluation after training.
    """
    groups = [_group_at("a", a), _group_at("b", b)]
    ks, notes = common_ks([run for group in groups for run in group.runs])
    models = evaluated_models(groups, ks)
    experiment = Experiment("", groups, ks, models, notes, Plan(margin))
    if len(experiment.trained) < 2:
        raise RunError(NEEDS_TRAINING)
    notes = [*caveats(groups, models), *notes]
    return Comparison(experiment.trained, experiment.pairs, ks, ALONE, notes)


def _group_at(key: str, patterns: str) -> Group:
    """Return the single group of these runs, with `key` before its label.

    Runs without any evaluation, such as failed ones, are left out if others have one.
    """
    runs = [load_run(path) for path in find_runs(filter(None, patterns.split(",")), key)]
    groups = group_runs([run for run in runs if run.evaluated_steps] or runs)
    if len(groups) > 1:
        labels = join_names([group.label for group in groups])
        raise RunError(f"{key}={patterns}: {len(groups)} groups ({labels}); narrow it to one")
    return replace(groups[0], label=f"{key} ({groups[0].label})")


def within_study(
    folder: Path, a: str, b: str, margin: float | None, control: str | None
) -> Comparison:
    """Compare two arms of a study, or of a packed one, as its report does.

    `control` is an arm of the two. It and the margin are by default those of a packed study's file.
    Raises RunError for an unknown arm, and for one without an evaluation after training.
    """
    arms = runs_of_arms(folder)
    for key, arm in (("a", a), ("b", b)):
        if arm not in arms:
            near, listed = did_you_mean(arm, list(arms)), ", ".join(arms)
            raise RunError(f"{key}={arm}: no such arm; {near}arms of {folder}: {listed}")
    experiment = read_study(folder, Plan(margin, control)).experiment
    groups = [_group_of(key, arm, arms[arm], experiment) for key, arm in (("a", a), ("b", b))]
    labels = [group.label for group in groups]
    trained = {model.label: model for model in experiment.trained}
    if not set(labels) <= set(trained):
        raise RunError(NEEDS_TRAINING)
    models = [trained[label] for label in labels]
    pairs = _between(experiment.pairs, labels)
    contrasts = [c for c in experiment.contrasts if {c.pair.a, c.pair.b} == set(labels)]
    of_all = len(trained) * (len(trained) - 1) // 2
    p = {"p": [pair.adjusted_p for pair in pairs]}
    basis = [
        f"Two of the {len(trained)} groups of {experiment.name}, with the numbers of its report: "
        "the spread over seeds is moderated over all of them.",
        f"p: Holm's correction over all {of_all} pairs.",
    ]
    if any(not contrast.margin for contrast in contrasts):
        p["p, named"] = [pair.contrast_p for pair in pairs]
        basis.append("p, named: Holm's over the pairs that the study named before its runs.")
    other = labels[(a, b).index(control)] if control else experiment.plan.control
    if other in labels:
        against = _between(comparisons.control_differences(experiment.pairs, other), labels)
        p["p, control"] = [pair.adjusted_p for pair in against]
        basis.append(f"p, control: Dunnett's over the {len(trained) - 1} comparisons with {other}.")
    return Comparison(
        models=models,
        pairs=pairs,
        ks=experiment.ks,
        basis=" ".join(basis),
        notes=[*caveats(groups, models), *experiment.notes],
        p=p,
        claims=[contrast for contrast in contrasts if contrast.margin],
    )


def _group_of(key: str, arm: str, runs: set[str], experiment: Experiment) -> Group:
    """Return the group of an arm's runs."""
    groups = [g for g in experiment.groups if any(run.path.name in runs for run in g.runs)]
    if len(groups) != 1:
        raise RunError(
            f"{key}={arm}: its runs in the study's folder are {len(groups)} groups in place of one "
            f"({join_names([g.label for g in groups] or ['none'])}); compare folders"
        )
    return groups[0]


def _between(pairs: Iterable[PairedDifference], labels: Sequence[str]) -> list[PairedDifference]:
    """Return a - b in each metric, from pairs of all groups in either order."""
    return [
        comparisons.find_pair([pair], *labels) for pair in pairs if {pair.a, pair.b} == set(labels)
    ]


def print_comparison(comparison: Comparison) -> None:
    """Print a comparison.

    With a margin, each pass@k has an answer: above, below, equal within the margin, not decided.
    """
    models, pairs, ks = comparison.models, comparison.pairs, comparison.ks
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)
    console.print(difference_table(comparison))
    lines = [comparison.basis]
    lines += [answer_sentence(pair) for pair in pairs if pair.equal_p == pair.equal_p]
    for claim in comparison.claims:
        found = contrast_phrase(claim)
        lines.append(f"{claim.pair.metric}, claimed before the runs: {found} (p {claim.p:.3f}).")
    ends = (f"pass@{ks[0]}", f"pass@{ks[-1]}")
    table = power_table(models, pairs).to_dict("records")
    lines += [power_sentence(row) for row in table if row["metric"] in ends]
    for line in [*lines, *(f"note: {sentence}" for sentence in comparison.notes)]:
        console.print(line, markup=False)


def difference_table(comparison: Comparison) -> Table:
    """Return a row per metric: both means, their difference, P(a better), and p-values."""
    table, p = Table(box=box.SIMPLE_HEAD), comparison.p
    interval, names = "a − b, 95 % interval", [model.label for model in comparison.models]
    for heading in ("", *names, interval, "P(a better)", *p, "seeds", "problems"):
        table.add_column(
            heading, justify="right" if heading else "left", no_wrap=heading == interval
        )
    for i, pair in enumerate(comparison.pairs):
        if pair.seeds:
            means = (comparisons.mean_score(model, pair.metric) for model in comparison.models)
            table.add_row(
                TITLES.get(pair.metric, pair.metric),
                *map(number, means),
                format_difference(pair),
                number(pair.improvement, 2),
                *(number(family[i]) for family in p.values()),
                str(pair.seeds),
                str(pair.problems),
            )
    return table


def answer_sentence(pair: PairedDifference) -> str:
    """State the answer to a − b within the margin, with the p-values of both tests."""
    answer = {
        comparisons.EQUAL: f"equal within {pair.margin:g}",
        comparisons.UNDECIDED: f"not decided within {pair.margin:g}, {decision_needs([pair])}",
    }.get(pair.answer, f"a is {pair.answer} b")
    tests = f"different: p {pair.adjusted_p:.3f}, equal: p {pair.equal_p:.3f}"
    return f"{pair.metric}: {answer} ({tests})."


def power_sentence(row: dict[Any, Any]) -> str:
    """State the detectable difference in one metric, and the resources to detect one of `wish`.

    Where the groups differ by the same on every seed and problem there is no noise to tell it from.
    """
    if row["smallest_difference"] < 1e-9:
        return f"{row['metric']}: a and b differ by the same everywhere; their noise is unknown."
    numbers = {what: row[f"{what}_needed"] for what in RESOURCES}
    needed = [f"{n:,.0f} {what}" for what, n in numbers.items() if n < float("inf")]
    takes = " or ".join(needed) if needed else "more than one of seeds, samples and problems"
    return (
        f"{row['metric']}: a true difference of {row['smallest_difference']:.3f} would have been "
        f"detected in most such comparisons; detecting {row['wish']:g} takes {takes}."
    )


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
