"""Findings in sentences: which group leads, by how much, how surely, and what could be seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from analysis.comparisons import (
    ANSWERS,
    EQUAL,
    SIGNIFICANCE,
    UNDECIDED,
    ContrastTest,
    PairedDifference,
    find_pair,
    letters,
    mean_score,
    tier_table,
)
from analysis.experiment import Experiment
from analysis.groups import join_names
from analysis.metrics import DISTINCT, TITLES
from analysis.power import smallest_difference

MOST_NAMED = 15  # groups or pairs in a statement; the tables have all
ONE_TRAINING = (
    "No two groups share two seeds, so differences between algorithms cannot be separated from "
    "training randomness, and nothing is tested."
)


class Finding(NamedTuple):
    """Statements on one metric; the title is "" for statements on none."""

    title: str
    statements: list[str]


def headline_metrics(ks: Sequence[int]) -> list[str]:
    """Return the metrics of the findings: pass@k for the least and greatest k, and diversity."""
    return list(dict.fromkeys([f"pass@{ks[0]}", f"pass@{ks[-1]}", DISTINCT]))


def findings(experiment: Experiment) -> list[Finding]:
    """Return the findings on each metric; with a single group, its change from the base."""
    trained, metrics = experiment.trained, headline_metrics(experiment.ks)
    if len(trained) == 1:
        changes = [
            f"{TITLES.get(metric, metric)} {before:.3f} → {after:.3f}"
            for metric in metrics
            if len(experiment.bases) == 1
            and not math.isnan(before := mean_score(experiment.bases[0], metric))
            and not math.isnan(after := mean_score(trained[0], metric))
        ]
        change = f" From the base to the end: {', '.join(changes)}." if changes else ""
        only = f"Only {trained[0].label} was trained here, so there is nothing to compare it with."
        return [Finding("", [only + change])]
    if not trained or max(pair.seeds for pair in experiment.pairs) < 2:
        return [Finding("", [ONE_TRAINING])] if trained else []
    found = [Finding(TITLES.get(m, m), _on_metric(experiment, m)) for m in metrics]
    return [finding for finding in found if finding.statements]


def _on_metric(experiment: Experiment, metric: str) -> list[str]:
    """State who leads, who is behind or not, what was named ahead, letters and power."""
    pairs = [pair for pair in experiment.pairs if pair.metric == metric]
    tiers = tier_table(experiment.trained, pairs)
    order = list(tiers["label"])
    if len(order) < 2:
        return []
    if max(pair.seeds for pair in pairs) < 2:
        return [ONE_TRAINING]
    named = {m.label: f"{m.label} ({mean_score(m, metric):.3f})" for m in experiment.trained}
    best, minus_best = order[0], {label: find_pair(pairs, label, order[0]) for label in order[1:]}
    behind = [x for x, pair in minus_best.items() if pair.separated and pair.difference.mean < 0]
    alike = [label for label in minus_best if label not in behind]
    second = minus_best[order[1]]
    statements = [
        f"Highest mean over {second.seeds} seeds and {second.problems} problems: {named[best]}. "
        f"Next is {named[order[1]]}, difference {format_difference(second)}."
    ]
    if behind:
        test = f"5 % level, Holm's correction for {len(pairs)} pairs"
        below = join_names([named[label] for label in behind], MOST_NAMED)
        statements.append(f"Significantly below {best} ({test}): {below}.")
    if alike:
        listed = join_names([named[label] for label in alike], MOST_NAMED)
        statements.append(f"No significant difference from {best}: {listed}.")
    bases = [(base.label, mean_score(base, metric)) for base in experiment.bases]
    known = [f"{label} ({mean:.3f})" for label, mean in bases if not math.isnan(mean)]
    if known:
        statements.append(f"Before training: {join_names(known)}.")
    statements += contrast_statements([c for c in experiment.contrasts if c.pair.metric == metric])
    statements += control_statements([d for d in experiment.against_control if d.metric == metric])
    separated = [(pair.a, pair.b) for pair in pairs if pair.separated]
    if 2 < len(order) <= MOST_NAMED and separated:
        shown = letters(order, separated).items()
        listed = ", ".join(f"{label} {its}" for label, its in shown)
        statements.append(f"Groups that share a letter do not differ significantly: {listed}.")
    statements += equality_statements(pairs)
    smallest = [float(smallest_difference(p.estimate)) for p in pairs if _is_open(p)]
    if known_sizes := [size for size in smallest if 5e-4 < size < math.inf]:
        low, high = min(known_sizes), min(max(known_sizes), 1.0)
        statements.append(
            "Not significant does not mean equal: most such comparisons would detect only a true "
            f"difference of {' to '.join(dict.fromkeys((f'{low:.2g}', f'{high:.2g}')))} or more."
        )
    return statements


def _is_open(pair: PairedDifference) -> bool:
    return not pair.separated and pair.seeds > 1


# What was named before the runs: contrasts, a control, a margin.


def contrast_statements(contrasts: Sequence[ContrastTest]) -> list[str]:
    """State the contrasts of one metric, the decided ones by name; [] if none was tested."""
    if all(math.isnan(one.p) for one in contrasts):
        return []
    decided = [contrast_phrase(one) for one in contrasts if one.answer != UNDECIDED]
    undecided = len(contrasts) - len(decided)
    parts = [*decided, *([f"{undecided} not decided"] if undecided else [])]
    listed = "; ".join(parts[:MOST_NAMED])
    return [f"Named before the runs (corrected for these {len(contrasts)} alone): {listed}."]


def contrast_phrase(one: ContrastTest) -> str:
    """Say what a contrast found: "a above b", "a less than 0.05 below b", or not decided."""
    a, b = one.pair.a, one.pair.b
    if one.answer == UNDECIDED:
        return f"{a} and {b} not decided"
    if not one.margin:
        return f"{a} {one.answer} {b}"
    amount = "less" if one.answer == "above" else "more"
    return f"{a} {amount} than {one.margin:g} below {b}"


def control_statements(differences: Sequence[PairedDifference]) -> list[str]:
    """State one metric's comparisons with the control; [] without a control."""
    tested = [one for one in differences if not math.isnan(one.adjusted_p)]
    parts = []
    for answer in ANSWERS:
        if labels := [one.a for one in tested if one.answer == answer]:
            within = f" within {tested[0].margin:g}" if answer == EQUAL else ""
            parts.append(f"{answer}{within}: {join_names(labels, MOST_NAMED)}")
    return [f"Against {tested[0].b} alone (Dunnett): {'; '.join(parts)}."] if tested else []


def equality_statements(pairs: Sequence[PairedDifference]) -> list[str]:
    """State which pairs of one metric are equal within the margin, and what deciding takes."""
    tested = [pair for pair in pairs if not math.isnan(pair.equal_p)]
    statements = []
    if equal := [f"{pair.a} and {pair.b}" for pair in tested if pair.answer == EQUAL]:
        listed = join_names(equal, MOST_NAMED)
        statements.append(f"Equal within {tested[0].margin:g}: {listed}.")
    if undecided := [pair for pair in tested if pair.answer == UNDECIDED]:
        statements.append(
            f"Not decided within {undecided[0].margin:g}: {len(undecided)} of {len(tested)} pairs; "
            f"{decision_needs(undecided)}."
        )
    return statements


def decision_needs(pairs: Sequence[PairedDifference]) -> str:
    """Say how many seeds, or where these do not suffice problems, an answer would take."""
    seeds = [p.seeds_to_decide for p in pairs if math.isfinite(p.seeds_to_decide)]
    rest = [p.problems_to_decide for p in pairs if not math.isfinite(p.seeds_to_decide)]
    problems = [number for number in rest if math.isfinite(number)]
    parts = [
        f"{len(found)} would take {min(found):,.0f} to {max(found):,.0f} {what}"
        for what, found in (("seeds", seeds), ("problems", problems))
        if found
    ]
    left = len(rest) - len(problems)
    return ", ".join([*parts, *([f"{left} more of both seeds and problems"] if left else [])])


# Differences as text.


def format_difference(pair: PairedDifference) -> str:
    """Return +0.052 [−0.020, 0.124], without the interval if it is unknown or has no width.

    It has none where two groups differ by the same on every problem, as where both solve none.
    """
    d = pair.difference
    if math.isnan(d.mean):
        return "–"
    ends = f" [{d.low:+.3f}, {d.high:+.3f}]" if d.high - d.low > 1e-9 else ""
    return f"{d.mean:+.3f}{ends}".replace("-", "−")


def difference_matrix(
    experiment: Experiment, metric: str, intervals: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows of row − column.

    A star marks groups that are separated, = equal ones, † pairs named before the runs and
    separated among these.
    """
    pairs = [pair for pair in experiment.pairs if pair.metric == metric]
    labels = [model.label for model in experiment.trained if metric in model.grids]

    def cell(pair: PairedDifference) -> str:
        mean, bracket, ends = format_difference(pair).partition(" [")
        mean += " †" if pair.contrast_p < SIGNIFICANCE else ""
        mean += " =" if pair.answer == EQUAL else ""
        text = mean + bracket + ends if intervals else mean
        return text + (" *" if pair.separated else "")

    rows = [[a, *("" if a == b else cell(find_pair(pairs, a, b)) for b in labels)] for a in labels]
    return ["row − column", *labels], rows
