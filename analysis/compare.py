"""Compare two groups of runs: their paired differences, with intervals.

    python -m analysis.compare study=outputs/study-mini a=spo b=ppo
    python -m analysis.compare a='outputs/x/spo-*' b='outputs/x/ppo-*'

With `study=`, the numbers are those of the study's report. Without it they are those of a report of
these two groups alone: the spread over seeds is then estimated from fewer groups, so intervals
differ from those of a report of more groups.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from rich.table import Table

from analysis.caveats import caveats
from analysis.comparisons import (
    ContrastTest,
    PairedDifference,
    control_differences,
    paired_differences,
    with_equality,
)
from analysis.experiment import Experiment, Plan, read_experiment
from analysis.findings import find_pair
from analysis.groups import Group, group_runs, join_names
from analysis.metrics import further_metrics, reported_metrics
from analysis.models import EvaluatedModel, common_ks, evaluated_models
from analysis.packed import experiment_of_packed
from analysis.runs import RunError, experiment_of, find_runs, is_packed, load_run, runs_of_arms
from envs.command_line import (
    did_you_mean,
    parse_arguments,
    print_help,
    quiet_when_unread,
    wants_help,
)

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

    from analysis.rendering import records
    from analysis.tables import power_table

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

    from analysis.comparisons import mean_score
    from analysis.findings import format_difference
    from analysis.metrics import TITLES
    from analysis.rendering import number

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
    from analysis.comparisons import EQUAL, UNDECIDED
    from analysis.findings import decision_needs

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
    from analysis.comparisons import UNDECIDED
    from analysis.findings import contrast_phrase

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


ALONE = (
    "The spread over seeds is estimated from these two groups alone. A report of more groups "
    "estimates it from all of them, so its intervals and p-values differ from these. Two arms of a "
    "study get the numbers of its report with study=FOLDER a=ARM b=ARM."
)
NEEDS_TRAINING = "a and b need an evaluation after training"


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
    claims: Sequence[ContrastTest] = ()


# Two groups by themselves.


def by_themselves(a: str, b: str, margin: float | None) -> Comparison:
    """Compare the runs at two lists of folders or glob patterns.

    Raises RunError if the runs of a or b are not one group with an evaluation after training.
    """
    loaded = [_load_group("a", a), _load_group("b", b)]
    groups = [group for group, _ in loaded]
    left_out = [note for _, note in loaded if note]
    ks, notes = common_ks([run for group in groups for run in group.runs])
    models = [model for model in evaluated_models(groups, ks) if not model.is_base]
    if len(models) < 2:
        raise RunError(f"{NEEDS_TRAINING}; choose longer runs")
    temperatures = sorted({t for model in models for t in model.temperatures})
    metrics = (*reported_metrics(ks), *further_metrics(ks, temperatures))
    pairs = paired_differences(models, [metric.name for metric in metrics])
    notes = [*left_out, *caveats(groups, models), *notes]
    return Comparison(models, with_equality(pairs, margin), ks, ALONE, notes)


def _load_group(key: str, patterns: str) -> tuple[Group, str]:
    """Return the single group of these runs, with `key` before its label, and what was left out.

    Runs without any evaluation, such as failed ones, are left out if others have one.
    """
    paths = find_runs(filter(None, patterns.split(",")), key)
    runs = [load_run(path) for path in paths]
    kept = [run for run in runs if run.evaluated_steps] or runs
    left_out = [f"{run.name} ({run.status})" for run in runs if run not in kept]
    groups = group_runs(kept)
    if len(groups) > 1:
        labels = ", ".join(group.label for group in groups[:4])
        raise RunError(
            f"{key}={patterns}: {len(groups)} groups ({labels}); narrow it to one of them"
        )
    note = (
        f"{key}: without any evaluation, so left out: {join_names(left_out)}." if left_out else ""
    )
    return replace(groups[0], label=f"{key} ({groups[0].label})"), note


# Two arms within their study.


def within_study(
    folder: Path, a: str, b: str, margin: float | None, control: str | None
) -> Comparison:
    """Compare two arms of a study, or of a packed one, as its report does.

    `control` is an arm of the two. It and the margin are by default those of a packed study's file.
    Raises RunError for an unknown arm, and for one without an evaluation after training.
    """
    arms = runs_of_arms(folder)
    _check_arms(folder, {"a": a, "b": b}, arms)
    experiment = _read_study(folder, arms[a], Plan(margin, control))
    groups = [_group_of(key, arm, arms[arm], experiment) for key, arm in (("a", a), ("b", b))]
    labels = [group.label for group in groups]
    models = [_trained(label, experiment) for label in labels]
    control_label = labels[(a, b).index(control)] if control else experiment.plan.control
    p = _p_values(experiment, labels, control_label)
    return Comparison(
        models=models,
        pairs=_between(experiment.pairs, labels),
        ks=experiment.ks,
        basis=_basis(experiment, p, control_label),
        notes=[*caveats(groups, models), *common_ks(experiment.runs)[1]],
        p=p,
        claims=[contrast for contrast in _contrasts(experiment, labels) if contrast.margin],
    )


def _check_arms(folder: Path, chosen: Mapping[str, str], arms: Iterable[str]) -> None:
    names = list(arms)
    for key, arm in chosen.items():
        if arm not in names:
            near, listed = did_you_mean(arm, names), ", ".join(names)
            raise RunError(f"{key}={arm}: no such arm; {near}arms of {folder}: {listed}")


def _read_study(folder: Path, runs_of_a: set[str], plan: Plan) -> Experiment:
    """Return what the report makes of a study: the experiment that a's runs are in."""
    paths = find_runs([folder], "study")
    if is_packed(folder):
        name = experiment_of_packed(folder)
    else:
        names = {path: experiment_of(path) for path in paths}
        name = next((names[path] for path in paths if path.name in runs_of_a), "")
        paths = [path for path in paths if names[path] == name]
    experiment, _ = read_experiment(name, paths, plan)
    if experiment is None:
        raise RunError(f"study={folder}: no run of a is in there; arms.json names them")
    return experiment


def _group_of(key: str, arm: str, runs: set[str], experiment: Experiment) -> Group:
    """Return the group of an arm's runs."""
    groups = [g for g in experiment.groups if any(run.path.name in runs for run in g.runs)]
    if not groups:
        raise RunError(f"{key}={arm}: none of its runs is in the study's folder")
    if len(groups) > 1:
        labels = join_names([group.label for group in groups])
        raise RunError(
            f"{key}={arm}: its runs differ in more than the seed and are {len(groups)} groups "
            f"({labels}); run the study with again=changed, or compare folders"
        )
    return groups[0]


def _trained(label: str, experiment: Experiment) -> EvaluatedModel:
    """Return the group's evaluation after training."""
    for model in experiment.trained:
        if model.label == label:
            return model
    raise RunError(f"{label} has none yet; {NEEDS_TRAINING}")


def _p_values(
    experiment: Experiment, labels: Sequence[str], control: str | None
) -> dict[str, list[float]]:
    """Return the families of tests that the two groups are in, with their p-values by metric."""
    pairs = _between(experiment.pairs, labels)
    p = {"p": [pair.adjusted_p for pair in pairs]}
    if any(not contrast.margin for contrast in _contrasts(experiment, labels)):
        p["p, named"] = [pair.contrast_p for pair in pairs]
    if control in labels:
        against = control_differences(experiment.pairs, control)
        p["p, control"] = [pair.adjusted_p for pair in _between(against, labels)]
    return p


def _contrasts(experiment: Experiment, labels: Sequence[str]) -> list[ContrastTest]:
    return [one for one in experiment.contrasts if {one.pair.a, one.pair.b} == set(labels)]


def _between(pairs: Sequence[PairedDifference], labels: Sequence[str]) -> list[PairedDifference]:
    """Return a - b in each metric, from pairs of all groups in either order."""
    of_both = [pair for pair in pairs if {pair.a, pair.b} == set(labels)]
    return [find_pair([pair], labels[0], labels[1]) for pair in of_both]


def _basis(experiment: Experiment, families: Iterable[str], control: str | None) -> str:
    groups = len(experiment.trained)
    says = {
        "p": f"p: Holm's correction over all {groups * (groups - 1) // 2} pairs.",
        "p, named": "p, named: Holm's over the pairs that the study named before its runs.",
        "p, control": f"p, control: Dunnett's over the {groups - 1} comparisons with {control}.",
    }
    return " ".join(
        [
            f"Two of the {groups} groups of {experiment.name}, with the numbers of its report: the "
            "spread over seeds is moderated over all of them.",
            *(says[family] for family in families),
        ]
    )


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
