"""Caveats: properties of the runs that change what a reader may conclude from a report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.budgets import BUDGET_TITLES, final_budget
from analysis.conversations import turn_limit
from analysis.groups import Group, as_text, join_names
from analysis.metrics import DISTINCT, TITLES
from analysis.models import EvaluatedModel, common_problems
from analysis.runs import Run

FEW_SEEDS = 5
FEW_PROBLEMS = 10
BUDGET_SLACK = 1.1  # budgets within this factor count as equal


def caveats(groups: Sequence[Group], models: Sequence[EvaluatedModel]) -> list[str]:
    """Return a sentence or two for each caveat, the most important first."""
    runs = [run for group in groups for run in group.runs]
    return [
        *_left_out(groups),
        *_training(groups),
        *_evaluation(groups),
        *_budgets(groups),
        *_provenance(runs),
        *_samples(models),
    ]


def extremes(amounts: Mapping[str, float]) -> str:
    """Return the least and the greatest amount, each with its label."""
    ends = (min(amounts, key=amounts.__getitem__), max(amounts, key=amounts.__getitem__))
    low, high = (
        f"{amounts[end]:,.0f} ({end})" if amounts[end] < 1e10 else f"{amounts[end]:.3g} ({end})"
        for end in ends
    )
    return f"from {low} to {high}"


def _left_out(groups: Sequence[Group]) -> Iterator[str]:
    """Runs that did not finish, or are not in the final numbers."""
    for group in groups:
        for run in group.runs:
            last = run.evaluated_steps[-1] if run.evaluated_steps else "none"
            if run.status != "finished":  # a killed process cannot change its own status
                state = run.status.replace("running", "running, or was killed")
                error = f" ({run.info['error']})" if run.info.get("error") else ""
                yield f"{run.name} is {state}{error}; its last evaluated step: {last}."
            if group.complete and run not in group.complete:
                yield (
                    f"{group.label}: {run.name} did not reach the evaluation at step "
                    f"{group.last_step}, and the final numbers leave it out."
                )
        if group.repeats:
            yield (
                f"{group.label}: {join_names([run.name for run in group.repeats])} left out, "
                "because another run with the same settings and seed got as far or further."
            )


def _training(groups: Sequence[Group]) -> Iterator[str]:
    """What the algorithm learned from: other policies, nothing, given or tuned settings."""
    tuned: dict[str, list[str]] = {}
    for group in groups:
        tuning = str(group.runs[0].config.get("tuned") or "given settings")
        tuned.setdefault(tuning.partition(", table ")[0], []).append(group.label)
        if mismatched := [run.name for run in group.runs if _is_mismatched(run)]:
            yield (
                f"{group.label}: in {join_names(mismatched)} the engine's log-probs differ from "
                "the learner's beyond the bound (see mismatch/mean), so the responses came from a "
                "policy other than the assumed one."
            )
        if group.settings.get("replay.from_runs") or group.settings.get("replay.files"):
            yield (
                f"{group.label} learned from samples of other policies; judging them is charged, "
                "but generating them and training those policies is not."
            )
    if len(tuned) > 1:
        yield "; ".join(f"{join_names(of)}: {how}" for how, of in sorted(tuned.items())) + "."


def _is_mismatched(run: Run) -> bool:
    """Return whether any log-prob check had a mean difference above its bound, or NaN."""
    if "mismatch/bound" not in run.metrics:
        return False
    checked = run.metrics[run.metrics["mismatch/bound"].notna()]
    return not (checked["mismatch/mean"] <= checked["mismatch/bound"]).all()


def _evaluation(groups: Sequence[Group]) -> Iterator[str]:
    """On which problems, in how many turns, and with how many seeds groups were evaluated."""
    on = {
        "the problems that were trained on (eval.split=train), which says nothing of others": [
            group.label for group in groups if group.runs[0].on_training_problems
        ],
        "the test split outside a study's final evaluation, so that nothing may be chosen by it": [
            g.label for g in groups if any("test_split_warning" in run.info for run in g.runs)
        ],
    }
    for split, labels in on.items():
        if labels:
            yield f"Evaluated on {split}: {join_names(labels)}."
    most = {g.label: max(map(turn_limit, g.complete)) for g in groups if g.complete}
    if len(set(most.values())) > 1:
        yield (
            f"Evaluated in conversations of different lengths, {extremes(most)} answers at most, "
            "so pass@k gives the groups different numbers of attempts; 1@k compares them at one "
            "submission and equal tokens."
        )
    if single := [group.label for group in groups if len(group.complete) == 1]:
        yield (
            f"One seed only: {join_names(single)}. These intervals cover the choice of problems "
            "and the sampling, but not training randomness. One seed cannot show a difference "
            "between algorithms."
        )
    if few := [group.label for group in groups if 1 < len(group.complete) < FEW_SEEDS]:
        yield (
            f"Fewer than {FEW_SEEDS} seeds: {join_names(few)}. The spread between seeds is itself "
            "uncertain, which makes intervals wide."
        )


def _budgets(groups: Sequence[Group]) -> Iterator[str]:
    unequal = []
    for name, title in BUDGET_TITLES.items():
        trained = [group for group in groups if group.last_step > 0]
        means = {g.label: np.mean([final_budget(run)[name] for run in g.complete]) for g in trained}
        spent = {label: float(mean) for label, mean in means.items() if not np.isnan(mean)}
        if spent and max(spent.values()) > BUDGET_SLACK * min(spent.values()):
            unequal.append(f"{title} {extremes(spent)}")
    if unequal:
        yield f"The groups spent different budgets: {'; '.join(unequal)}."


def _provenance(runs: Sequence[Run]) -> Iterator[str]:
    """Files of code and facts in run.json that should be the same in all runs."""
    versions: dict[str, set[str]] = {}
    for run in runs:
        try:
            code: dict[str, str] = json.loads((run.path / "digests.json").read_text())["code"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for file, digest in code.items():
            versions.setdefault(file, set()).add(digest)
    if differ := sorted(file for file, found in versions.items() if len(found) > 1):
        yield f"The code of the runs differs in {join_names(differ)}."
    for key, title in (
        ("commit", "commits"),
        ("data_hash", "data hashes: the problems are not the same"),
        ("judge_version", "judge versions: a program may get another verdict"),
        ("sandbox", "sandboxes: verdicts near a limit and judging times may differ"),
        ("hardware", "machines: wall times cannot be compared"),
    ):
        values: list[Any] = [run.info[key] for run in runs if run.info.get(key) is not None]
        texts = sorted({as_text(value) for value in values})
        if len(texts) > 1:
            shown = f" ({join_names(texts)})" if max(map(len, texts)) <= 60 else ""
            yield f"The runs have {len(texts)} different {title}{shown}."


def _samples(models: Sequence[EvaluatedModel]) -> Iterator[str]:
    """Which problems and samples the numbers of the models rest on."""
    problems = {m.label: frozenset[str]().union(*(s["problem"] for s in m.samples)) for m in models}
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
    trained = [model for model in models if not model.is_base and DISTINCT in model.grids]
    common = len(common_problems(trained, DISTINCT))
    defined = {model.label: float(np.mean(model.problems_defined(DISTINCT))) for model in trained}
    if len(trained) > 1 and any(number != common for number in defined.values()):
        yield (
            f"{TITLES[DISTINCT]} is a mean over different problems for each group, "
            f"{extremes(defined)}; its column _common in table.csv is over the {common} that all "
            "have. Distinct accepted of k is over every problem."
        )
