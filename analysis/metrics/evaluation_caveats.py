"""Caveats on evaluations: which problems and samples the numbers of the models rest on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from analysis.load.groups import join_names
from analysis.metrics.definitions import DISTINCT, TITLES
from analysis.metrics.evaluated_models import EvaluatedModel, common_problems
from analysis.metrics.sample_counts import mean_count

FEW_PROBLEMS = 10


def evaluation_caveats(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Yield a sentence or two for each caveat, the most important first."""
    yield from _evaluations(models)
    yield from _missing_temperatures(models)
    yield from _few_evaluated(models)
    yield from _few_problems(models)
    yield from _different_problems(models)


def _evaluations(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    problems = {model.label: _problems(model) for model in models}
    if len(set(problems.values())) > 1:
        sizes = {label: len(names) for label, names in problems.items()}
        yield f"Not every row was evaluated on the same problems (counts: {extremes(sizes)})."
    sizes = {model.label: max(model.sample_counts) for model in models}
    if len(set(sizes.values())) > 1:
        yield (
            f"Samples per problem differ, {extremes(sizes)}: distinct-2 and distinct / accepted "
            "cannot be compared between them."
        )
    for model in models:
        further = (samples for parts in model.further_samples for samples in parts.values())
        all_samples = [*model.samples, *further]
        lost = sum(int((part["verdict"] == "INFRA_ERROR").sum()) for part in all_samples)
        if lost:
            total = sum(map(len, all_samples))
            yield f"{model.label}: the judge failed on {lost} of {total} samples (left out)."


def _missing_temperatures(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Runs without an evaluation at a further temperature that others have."""
    runs = [pair for m in models for pair in zip(m.runs, m.further_samples, strict=True)]
    for temperature in sorted({t for _, samples in runs for t in samples}):
        missing = [run.name for run, samples in runs if temperature not in samples]
        if missing:
            yield (
                f"Not evaluated at temperature {temperature:g}, and left out of the numbers there: "
                f"{join_names(dict.fromkeys(missing))}."
            )


def _few_evaluated(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Evaluations on so few problems that resampling them says little of other problems."""
    fewest = min((len(_problems(model)) for model in models), default=FEW_PROBLEMS)
    if fewest < FEW_PROBLEMS:
        yield (
            f"Evaluated on {fewest} problem{'s' * (fewest > 1)} only, so intervals over problems "
            "cannot be relied on."
        )


def _few_problems(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """Diversity metrics for which few problems have enough accepted programs."""
    for metric in (DISTINCT, "edit_distance"):
        counts = {}
        for model in models:
            per_run = model.problems_defined(metric)
            if 0 < sum(per_run) < FEW_PROBLEMS * len(per_run):
                counts[model.label] = sum(per_run) / len(per_run)
        if counts:
            shown = join_names(
                [f"{label} ({mean_count(count)})" for label, count in counts.items()]
            )
            yield f"{TITLES[metric]} is based on few problems: {shown}; do not rely on it."


def _different_problems(models: Sequence[EvaluatedModel]) -> Iterable[str]:
    """The trained models whose distinct_of_5 is a mean over other problems, with their numbers."""
    trained = [model for model in models if not model.is_base and DISTINCT in model.grids]
    if len(trained) < 2:
        return
    common = common_problems(trained, DISTINCT)
    counts = {model.label: float(np.mean(model.problems_defined(DISTINCT))) for model in trained}
    if all(count == len(common) for count in counts.values()):
        return
    shown = join_names([f"{label} {mean_count(count)}" for label, count in counts.items()])
    yield (
        f"{TITLES[DISTINCT]} is a mean over different problems for each group ({shown}); "
        f"{len(common)} are common to all, and its column _common in table.csv is over these. "
        "Distinct accepted of k is over every problem."
    )


def _problems(model: EvaluatedModel) -> frozenset[str]:
    return frozenset(name for samples in model.samples for name in samples["problem"].unique())


def extremes(amounts: Mapping[str, float]) -> str:
    """Return the least and the greatest amount, each with its label."""
    low, high = min(amounts, key=amounts.__getitem__), max(amounts, key=amounts.__getitem__)
    low_text, high_text = (
        f"{amount:,.0f}" if amount < 1e10 else f"{amount:.3g}".replace("e+", "e")  # FLOPs
        for amount in (amounts[low], amounts[high])
    )
    return f"from {low_text} ({low}) to {high_text} ({high})"
