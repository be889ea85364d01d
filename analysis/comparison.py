"""Two groups of runs with their paired differences: by themselves, or as arms of a whole study.

The numbers of a pair depend on what else is compared: the spread over seeds is moderated over all
groups (`analysis.stats.moderation`), and p-values are corrected for all pairs. So two arms within
their study have the numbers of the study's report, and two groups by themselves have others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.load.groups import Group, group_runs, join_names
from analysis.load.packed_study import experiment_of_packed
from analysis.load.run_folders import (
    RunError,
    experiment_of,
    find_runs,
    is_packed,
    load_run,
    runs_of_arms,
)
from analysis.metrics.definitions import further_metrics, reported_metrics
from analysis.metrics.evaluated_models import EvaluatedModel, common_ks, evaluated_models
from analysis.report.caveats import caveats
from analysis.report.experiment import Experiment, Plan, read_experiment
from analysis.report.headline import find_pair
from analysis.stats.differences import PairedDifference, paired_differences
from analysis.stats.equivalence import with_equality
from analysis.stats.named_pairs import ContrastTest, control_differences
from envs.command_line import did_you_mean

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
