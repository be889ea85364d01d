"""Caveats: properties of the runs that change what a reader may conclude from a report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.budgets import BUDGET_TITLES, final_budget
from analysis.conversations import turn_limit
from analysis.groups import Group, as_text, differing_keys, join_names
from analysis.metrics import DISTINCT, TITLES
from analysis.models import EvaluatedModel, common_problems
from analysis.runs import Run

FEW_SEEDS = 5
FEW_PROBLEMS = 10
IDLE_SHARE = 0.01  # of the steps, from which on steps without an update are named
BUDGET_SLACK = 1.1  # budgets within this factor count as equal


def caveats(groups: Sequence[Group], models: Sequence[EvaluatedModel]) -> list[str]:
    """Return a sentence or two for each caveat, the most important first."""
    of_groups = (
        _unfinished,
        _left_out,
        _no_success,
        _foreign_policies,
        _idle_steps,
        _evaluation_problems,
        _few_seeds,
        _unequal_budgets,
        _tuning,
        _code,
        _provenance,
    )
    of_models = (_samples, _missing_temperatures, _few_problems, _different_problems)
    sentences = [sentence for check in of_groups for sentence in check(groups)]
    return sentences + [sentence for check in of_models for sentence in check(models)]


def _all_or_names(labels: Sequence[str], groups: Sequence[Group]) -> str:
    return f"all {len(labels)} groups" if len(labels) == len(groups) > 3 else join_names(labels)


def extremes(amounts: Mapping[str, float]) -> str:
    """Return the least and the greatest amount, each with its label."""
    ends = (min(amounts, key=amounts.__getitem__), max(amounts, key=amounts.__getitem__))
    low, high = (
        f"{amounts[end]:,.0f} ({end})" if amounts[end] < 1e10 else f"{amounts[end]:.3g} ({end})"
        for end in ends
    )
    return f"from {low} to {high}"


# Runs and groups.


def _unfinished(groups: Sequence[Group]) -> Iterator[str]:
    for run in (run for group in groups for run in group.runs if run.status != "finished"):
        # A killed process cannot change its own status.
        state = "running, or was killed" if run.status == "running" else run.status
        error = f" ({run.info['error']})" if run.info.get("error") else ""
        last = run.evaluated_steps[-1] if run.evaluated_steps else "none"
        yield f"{run.name} is {state}{error}; its last evaluated step: {last}."


def _left_out(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        behind = [run.name for run in group.runs if run not in group.complete]
        if not group.complete:
            yield f"{group.label}: no evaluation at all, so it has no row in the result table."
        elif behind:
            yield (
                f"{group.label}: {join_names(behind)} did not reach the evaluation at step "
                f"{group.last_step}, and the final numbers leave them out."
            )
        if group.repeats:
            names = join_names([run.name for run in group.repeats])
            yield (
                f"{group.label}: {names} left out, because another run with the same settings and "
                "seed got as far or further."
            )


def _no_success(groups: Sequence[Group]) -> Iterator[str]:
    """Groups that learn from drawn responses alone, none of which was accepted."""
    labels = []
    for group in groups:
        if group.settings.get("train.offline_share") or group.settings.get("train.replay_share"):
            continue
        shares = [
            share
            for run in group.complete
            if "accepted_share" in run.metrics
            and (share := run.metrics["accepted_share"]).notna().any()
        ]
        if shares and max(share.max() for share in shares) == 0:
            labels.append(group.label)
    if labels:
        yield (
            f"No response drawn in training was accepted: {_all_or_names(labels, groups)}. "
            "Such runs show nothing of how an algorithm learns from its rewards."
        )


def _foreign_policies(groups: Sequence[Group]) -> Iterator[str]:
    """Groups that learned from another policy than the ratio assumes, or from unpaid samples."""
    for group in groups:
        mismatched = [run.name for run in group.runs if _is_mismatched(run)]
        if mismatched:
            yield (
                f"{group.label}: in {join_names(mismatched)} the engine's log-probs differ from "
                "the learner's beyond the bound (see mismatch/mean), so the responses came from a "
                "policy other than the assumed one."
            )
    learned = [
        group.label
        for group in groups
        if group.settings.get("replay.from_runs") or group.settings.get("replay.files")
    ]
    if learned:
        yield (
            f"{join_names(learned)} learned from samples of other policies; judging them is "
            "charged, but generating them and training those policies is not."
        )


def _is_mismatched(run: Run) -> bool:
    """Return whether any log-prob check had a mean difference above its bound, or NaN."""
    if "mismatch/bound" not in run.metrics:
        return False
    checked = run.metrics[run.metrics["mismatch/bound"].notna()]
    return not (checked["mismatch/mean"] <= checked["mismatch/bound"]).all()


def _idle_steps(groups: Sequence[Group]) -> Iterator[str]:
    """Groups in which many batches held nothing that the loss learns from, e.g. no success."""
    name, many = "budget/optimiser_steps", []
    for group in groups:
        taken = [
            run.metrics[name].diff().fillna(run.metrics[name])
            for run in group.complete
            if name in run.metrics and not run.packed
        ]
        idle = sum(int((each == 0).sum()) for each in taken) / max(1, sum(map(len, taken)))
        if idle >= IDLE_SHARE:
            many.append(f"{group.label} ({idle:.0%})")
    if many:
        yield (
            "Some batches held nothing to learn from, so their steps left the weights as they were "
            f"(share of the steps): {join_names(many)}."
        )


def _evaluation_problems(groups: Sequence[Group]) -> Iterator[str]:
    """Groups evaluated on training problems, on the test split, or in longer conversations."""
    trained_on = [group.label for group in groups if group.runs[0].on_training_problems]
    if trained_on:
        yield (
            "Evaluated on the problems that were trained on (eval.split=train): "
            f"{_all_or_names(trained_on, groups)}. These numbers say what was learnt of those "
            "problems, not how many other problems the model solves."
        )
    tested = [g.label for g in groups if any("test_split_warning" in run.info for run in g.runs)]
    if tested:
        yield (
            f"On the test split outside a study's final evaluation: {_all_or_names(tested, groups)}"
            ". A default or design that is chosen by these numbers is chosen on the test problems; "
            "eval.split=choose is for that."
        )
    most = {g.label: max(map(turn_limit, g.complete)) for g in groups if g.complete}
    if len(set(most.values())) > 1:
        yield (
            f"Evaluated in conversations of different lengths, {extremes(most)} answers at most, "
            "so pass@k gives the groups different numbers of attempts; 1@k compares them at one "
            "submission and equal tokens."
        )


def _few_seeds(groups: Sequence[Group]) -> Iterator[str]:
    single = [group.label for group in groups if len(group.complete) == 1]
    few = [group.label for group in groups if 1 < len(group.complete) < FEW_SEEDS]
    if single:
        yield (
            f"One seed only: {_all_or_names(single, groups)}. These intervals cover the choice of "
            "problems and the sampling, but not training randomness. One seed cannot show a "
            "difference between algorithms."
        )
    if few:
        yield (
            f"Fewer than {FEW_SEEDS} seeds: {_all_or_names(few, groups)}. The spread between "
            "seeds is itself uncertain, which makes intervals wide."
        )


def _unequal_budgets(groups: Sequence[Group]) -> Iterator[str]:
    unequal = []
    for name, title in BUDGET_TITLES.items():
        trained = [group for group in groups if group.last_step > 0 and group.complete]
        means = {g.label: np.mean([final_budget(run)[name] for run in g.complete]) for g in trained}
        spent = {label: float(mean) for label, mean in means.items() if not np.isnan(mean)}
        if spent and max(spent.values()) > BUDGET_SLACK * min(spent.values()):
            unequal.append(f"{title} {extremes(spent)}")
    if unequal:
        yield f"The groups spent different budgets: {'; '.join(unequal)}."


def _tuning(groups: Sequence[Group]) -> Iterator[str]:
    """The tuning of each group (`tuned`), if any group was tuned."""
    by_tuning: dict[str, list[str]] = {}
    for group in groups:
        tuned = str(group.runs[0].config.get("tuned") or "").partition(", table ")[0]
        by_tuning.setdefault(tuned, []).append(group.label)
    untuned = by_tuning.pop("", [])
    if by_tuning:
        said = "; ".join(f"by {how}: {join_names(of)}" for how, of in sorted(by_tuning.items()))
        rest = f" Run with given settings: {join_names(untuned)}." if untuned else ""
        yield f"Tuned {said}.{rest}"


# Code and machines.


def differing_code(runs: Sequence[Run]) -> list[str]:
    """Return, sorted, the files that runs import in different versions, as far as recorded."""
    versions: dict[str, set[str]] = {}
    for run in runs:
        try:
            code = json.loads((run.path / "digests.json").read_text())["code"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for file, digest in code.items():
            versions.setdefault(file, set()).add(digest)
    resumed = (entry for run in runs for entry in run.info.get("resumed") or ())
    changed = {file for entry in resumed for file in entry.get("changed", {}).get("code", ())}
    return sorted(changed | {file for file, found in versions.items() if len(found) > 1})


def _code(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        if files := differing_code(group.runs):
            yield (
                f"{group.label}: the code of its runs differs in {join_names(files)}, so its "
                "numbers are of several versions."
            )
    runs = [run for group in groups for run in group.runs]
    commits = sorted({str(run.info.get("commit") or "no commit") for run in runs})
    files = differing_code(runs)
    code = f" The files of code that differ: {join_names(files)}." if files else ""
    if len(commits) > 1:
        yield f"The runs have {len(commits)} different commits ({join_names(commits)}).{code}"
    if uncommitted := [r.name for r in runs if str(r.info.get("commit")).endswith("+")]:
        yield f"The code had uncommitted changes in {join_names(uncommitted)}."


# Keys of run.json that should be the same in all runs, and the consequence if they are not.
PROVENANCE = {
    "data_hash": ("data hashes", "the problems are not the same"),
    "judge_version": ("judge versions", "a program may get another verdict"),
    "sandbox": ("sandboxes", "verdicts near a limit and judging times may differ"),
    "hardware": ("hardware", "wall times cannot be compared, and rounding may differ"),
    "versions": ("package versions", "numbers may differ slightly"),
}


def _provenance(groups: Sequence[Group]) -> Iterator[str]:
    for key, (title, consequence) in PROVENANCE.items():
        values: list[Any] = [
            run.info[key] for g in groups for run in g.runs if run.info.get(key) is not None
        ]
        if all(isinstance(value, dict) for value in values):
            differ = differing_keys(values)
            values = [{name: value.get(name) for name in differ} for value in values]
        texts = sorted({as_text(value) for value in values})
        if len(texts) > 1:
            shown = f" ({join_names(texts)})" if max(map(len, texts)) <= 60 else ""
            yield f"The runs have {len(texts)} different {title}{shown}: {consequence}."


# Evaluations.


def _samples(models: Sequence[EvaluatedModel]) -> Iterator[str]:
    problems = {model.label: _problems(model) for model in models}
    sizes = {label: len(names) for label, names in problems.items()}
    if len(set(problems.values())) > 1:
        yield f"Not every row was evaluated on the same problems (counts: {extremes(sizes)})."
    if sizes and min(sizes.values()) < FEW_PROBLEMS:
        yield f"Evaluated on {min(sizes.values())} problems only, too few for intervals over them."
    counts = {model.label: max(model.sample_counts) for model in models}
    if len(set(counts.values())) > 1:
        yield (
            f"Samples per problem differ, {extremes(counts)}: distinct-2 and distinct / accepted "
            "cannot be compared between them."
        )
    for model in models:
        further = (samples for parts in model.further_samples for samples in parts.values())
        verdicts = [part["verdict"] for part in (*model.samples, *further)]
        if lost := sum(int((part == "INFRA_ERROR").sum()) for part in verdicts):
            total = sum(map(len, verdicts))
            yield f"{model.label}: the judge failed on {lost} of {total} samples (left out)."


def _problems(model: EvaluatedModel) -> frozenset[str]:
    return frozenset(name for samples in model.samples for name in samples["problem"].unique())


def _missing_temperatures(models: Sequence[EvaluatedModel]) -> Iterator[str]:
    """Runs without an evaluation at a further temperature that others have."""
    runs = [pair for m in models for pair in zip(m.runs, m.further_samples, strict=True)]
    for temperature in sorted({t for _, samples in runs for t in samples}):
        missing = dict.fromkeys(run.name for run, samples in runs if temperature not in samples)
        if missing:
            yield (
                f"Not evaluated at temperature {temperature:g}, and left out of the numbers there: "
                f"{join_names(missing)}."
            )


def _few_problems(models: Sequence[EvaluatedModel]) -> Iterator[str]:
    """Diversity metrics for which few problems have enough accepted programs."""
    for metric in (DISTINCT, "edit_distance"):
        counts = {model.label: np.mean(model.problems_defined(metric)) for model in models}
        few = [f"{label} ({n:.3g})" for label, n in counts.items() if 0 < n < FEW_PROBLEMS]
        if few:
            yield f"{TITLES[metric]} is based on few problems: {join_names(few)}."


def _different_problems(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """The trained models whose distinct_of_5 is a mean over other problems, with their numbers."""
    trained = [model for model in models if not model.is_base and DISTINCT in model.grids]
    common = len(common_problems(trained, DISTINCT))
    counts = {model.label: float(np.mean(model.problems_defined(DISTINCT))) for model in trained}
    if len(trained) > 1 and any(count != common for count in counts.values()):
        yield (
            f"{TITLES[DISTINCT]} is a mean over different problems for each group, "
            f"{extremes(counts)}; its column _common in table.csv is over the {common} that all "
            "have. Distinct accepted of k is over every problem."
        )
