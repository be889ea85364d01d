"""Findings in sentences, and caveats.

Findings: which group leads, by how much, how surely, and what could be seen. Caveats: properties of
the runs that change what a reader may conclude from a report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from analysis import comparisons
from analysis.budgets import BUDGET_TITLES, final_budget
from analysis.comparisons import PairedDifference
from analysis.experiment import Experiment
from analysis.front import crossing_statement
from analysis.groups import EvaluatedModel, Group, as_text, common_problems, join_names, spoken
from analysis.intervals import smallest_difference
from analysis.metrics import AT_EQUAL, DISTINCT, TITLES
from analysis.runs import Run
from analysis.turns import turn_limit

MANY_TRIES = 64  # from which a finding says where the base passes
MOST_NAMED = 15  # groups or pairs in a statement; the tables have all
MOST_LISTED = 3  # changes that a sentence lists; of more it has the least and the greatest
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
    """Return the answer in a few sentences, then what else is found on each metric.

    The answer says who leads at the least and at the greatest k, and whether training helped.
    """
    trained, metrics = experiment.trained, headline_metrics(experiment.ks)
    tries = experiment.crossings[experiment.crossings["most"] >= MANY_TRIES]
    wide = [Finding("More tries", said) for said in [crossing_statement(tries, MOST_NAMED)] if said]
    shares = [metric for metric in metrics if metric != DISTINCT]
    changes = [said for said in [training_statement(experiment, shares)] if said]
    if len(trained) == 1:
        only = f"Only {trained[0].label} was trained here, so there is nothing to compare it with."
        return [Finding("", [only, *changes])]
    if not trained or max(pair.seeds for pair in experiment.pairs) < 2:
        return [Finding("", [ONE_TRAINING, *changes])] if trained else []
    found = [(metric, _on_metric(experiment, metric)) for metric in metrics]
    leads = [f"{TITLES.get(m, m)}: {said[0]}" for m, said in found if said and m in shares]
    more = [Finding(TITLES.get(m, m), said[m in shares :]) for m, said in found]
    more += [Finding(f"{m}{AT_EQUAL}", _on_front(experiment, m + AT_EQUAL)) for m in shares[1:]]
    every = [Finding("", leads + changes), *more, *wide]
    return [finding for finding in every if finding.statements]


def training_statement(experiment: Experiment, metrics: Sequence[str]) -> str:
    """Say in how many groups training changed each metric, and by how much; "" without a base."""
    gains = {metric: gains_over_base(experiment, metric) for metric in metrics}
    tested = any(not math.isnan(one.adjusted_p) for of in gains.values() for one in of)
    helped, parts = False, []
    for metric, sign in ((metric, sign) for metric in metrics for sign in (1, -1)):
        moved = [one for one in gains[metric] if one.separated or not tested]
        by_size = sorted((sign * one.difference.mean, one.a) for one in moved)
        sizes = [f"{'+' if sign > 0 else '−'}{size:.3f} ({a})" for size, a in by_size if size > 0]
        if sizes:
            helped |= sign > 0
            by = join_names(sizes) if len(sizes) <= MOST_LISTED else f"{sizes[0]} to {sizes[-1]}"
            parts.append(f"{metric} by {by} in {len(sizes)} of {len(gains[metric])} groups")
    how = "significant changes" if tested else "one seed, not tested"
    start = f"Training {'helped' if helped else 'did not help'}, {how}: "
    return f"{start}{'; '.join(parts or ['none'])}." if any(gains.values()) else ""


def gains_over_base(experiment: Experiment, metric: str) -> list[PairedDifference]:
    """Return trained - base for each model that has a base; p-values by Holm's correction."""
    gains: list[PairedDifference] = []
    for base in experiment.bases:
        of = [m for m in experiment.trained if experiment.starts.get(m.label) == base.label]
        pairs = comparisons.paired_differences([base, *of], [metric])
        gains += [pair.reversed() for pair in pairs if pair.a == base.label]
    return comparisons.holm_corrected([g for g in gains if not math.isnan(g.difference.mean)])


def _on_front(experiment: Experiment, metric: str) -> list[str]:
    """State the decided contrasts and the separated pairs at equal pass@1; [] if there are none."""
    pairs = [pair for pair in experiment.pairs if pair.metric == metric]
    contrasts = [one for one in experiment.contrasts if one.pair.metric == metric]
    decided = any(one.answer != comparisons.UNDECIDED for one in contrasts)
    wins = [p if p.difference.mean > 0 else p.reversed() for p in pairs if p.separated]
    by_winner = groupby(sorted(wins, key=attrgetter("a")), attrgetter("a"))
    said = [f"{best} above {join_names([pair.b for pair in of])}" for best, of in by_winner]
    above = f"Significant among {len(pairs)} pairs with a range in common: {'; '.join(said)}."
    return (contrast_statements(contrasts) if decided else []) + ([above] if said else [])


def _on_metric(experiment: Experiment, metric: str) -> list[str]:
    """State who leads, who is behind or not, what was named ahead, and power."""
    pairs = [pair for pair in experiment.pairs if pair.metric == metric]
    tiers = comparisons.tier_table(experiment.trained, pairs)
    order = list(tiers["label"])
    if len(order) < 2:
        return []
    if max(pair.seeds for pair in pairs) < 2:
        return [ONE_TRAINING]
    means = {m.label: comparisons.mean_score(m, metric) for m in experiment.models}
    named = {label: f"{label} ({mean:.3f})" for label, mean in means.items()}
    best, *others = order
    minus_best = {label: comparisons.find_pair(pairs, label, best) for label in others}
    behind = [x for x, pair in minus_best.items() if pair.separated and pair.difference.mean < 0]
    alike = [label for label in minus_best if label not in behind]
    second = minus_best[order[1]]
    gap = f"{format_difference(second.reversed())} over {named[order[1]]}"
    gap += f", {'' if second.separated else 'not '}significant among {len(pairs)} pairs"
    test = f"5 % level, Holm's correction for {len(pairs)} pairs"
    statements = [
        f"{best} leads with {means[best]:.3f}, {gap}; significantly above {len(behind)} of "
        f"the {len(others)} others.",
        f"Means over {second.seeds} seeds and {second.problems} problems.",
    ]
    if behind:
        below = join_names([named[label] for label in behind], MOST_NAMED)
        statements.append(f"Significantly below {best} ({test}): {below}.")
    if alike:
        listed = join_names([named[label] for label in alike], MOST_NAMED)
        statements.append(f"No significant difference from {best}: {listed}.")
    if known := [named[m.label] for m in experiment.bases if not math.isnan(means[m.label])]:
        statements.append(f"Before training: {join_names(map(spoken, known))}.")
    statements += contrast_statements([c for c in experiment.contrasts if c.pair.metric == metric])
    statements += control_statements([d for d in experiment.against_control if d.metric == metric])
    statements += equality_statements(pairs)
    open_pairs = (pair for pair in pairs if not pair.separated and pair.seeds > 1)
    smallest = [float(smallest_difference(pair.estimate)) for pair in open_pairs]
    if known_sizes := [size for size in smallest if 5e-4 < size < math.inf]:
        low, high = min(known_sizes), min(max(known_sizes), 1.0)
        statements.append(
            "Not significant does not mean equal: most such comparisons would detect only a true "
            f"difference of {' to '.join(dict.fromkeys((f'{low:.2g}', f'{high:.2g}')))} or more."
        )
    return statements


# What was named before the runs: contrasts, a control, a margin.


def contrast_statements(contrasts: Sequence[comparisons.ContrastTest]) -> list[str]:
    """State the contrasts of one metric, the decided ones by name; [] if none was tested."""
    if all(math.isnan(one.p) for one in contrasts):
        return []
    decided = [contrast_phrase(one) for one in contrasts if one.answer != comparisons.UNDECIDED]
    undecided = len(contrasts) - len(decided)
    parts = [*decided, *([f"{undecided} not decided"] if undecided else [])]
    listed = "; ".join(parts[:MOST_NAMED])
    return [f"Named before the runs (corrected for these {len(contrasts)} alone): {listed}."]


def contrast_phrase(one: comparisons.ContrastTest) -> str:
    """Say what a contrast found: "a above b", "a less than 0.05 below b", or not decided."""
    a, b = one.pair.a, one.pair.b
    if one.answer == comparisons.UNDECIDED:
        return f"{a} and {b} not decided"
    if not one.margin:
        return f"{a} {one.answer} {b}"
    amount = "less" if one.answer == "above" else "more"
    return f"{a} {amount} than {one.margin:g} below {b}"


def control_statements(differences: Sequence[PairedDifference]) -> list[str]:
    """State one metric's comparisons with the control; [] without a control."""
    tested = [one for one in differences if not math.isnan(one.adjusted_p)]
    parts = []
    for answer in comparisons.ANSWERS:
        if labels := [one.a for one in tested if one.answer == answer]:
            within = f" within {tested[0].margin:g}" if answer == comparisons.EQUAL else ""
            parts.append(f"{answer}{within}: {join_names(labels, MOST_NAMED)}")
    return [f"Against {tested[0].b} alone (Dunnett): {'; '.join(parts)}."] if tested else []


def equality_statements(pairs: Sequence[PairedDifference]) -> list[str]:
    """State which pairs of one metric are equal within the margin, and what deciding takes."""
    tested = [pair for pair in pairs if not math.isnan(pair.equal_p)]
    statements = []
    if equal := [f"{pair.a} and {pair.b}" for pair in tested if pair.answer == comparisons.EQUAL]:
        listed = join_names(equal, MOST_NAMED)
        statements.append(f"Equal within {tested[0].margin:g}: {listed}.")
    if undecided := [pair for pair in tested if pair.answer == comparisons.UNDECIDED]:
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
        f"{len(found)} would take " + " to ".join(dict.fromkeys(f"{n:,.0f}" for n in ends)) + what
        for what, found in ((" seeds", seeds), (" problems", problems))
        for ends in ([(min(found), max(found))] if found else [])
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
        mean += " †" if pair.contrast_p < comparisons.SIGNIFICANCE else ""
        mean += " =" if pair.answer == comparisons.EQUAL else ""
        text = mean + bracket + ends if intervals else mean
        return text + (" *" if pair.separated else "")

    rows = [
        [a, *("" if a == b else cell(comparisons.find_pair(pairs, a, b)) for b in labels)]
        for a in labels
    ]
    return ["row − column", *labels], rows


# Caveats.

FEW_SEEDS = 5
FEW_PROBLEMS = 10
BUDGET_SLACK = 1.1  # budgets within this factor count as equal


def caveats(groups: Sequence[Group], models: Sequence[EvaluatedModel]) -> list[str]:
    """Return a sentence or two for each caveat, the most important first."""
    runs = [run for group in groups for run in group.runs]
    of_groups = (_left_out, _training, _evaluation, _budgets)
    found = [sentence for kind in of_groups for sentence in kind(groups)]
    return [*found, *_provenance(runs), *_samples(models)]


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
    for group in groups:
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
    if len(ways := tuning_ways(groups)) > 1:
        first: dict[str, list[str]] = {}
        for stages, labels in ways.items():
            first.setdefault(stages[0].partition(" (")[0], []).extend(labels)
        how = "; ".join(f"{join_names(of)} by {words}" for words, of in first.items())
        yield f"Tuned differently; the first stage: {how}."


def tuning_ways(groups: Sequence[Group]) -> dict[tuple[str, ...], list[str]]:
    """Return the stages of each way of tuning, such as "32 trials (steps=40)" → its groups."""
    ways: dict[tuple[str, ...], list[str]] = {}
    for group in groups:
        tuned = str(group.runs[0].config.get("tuned") or "given settings")
        stages = tuple(tuned.partition(", table ")[0].split(", "))
        ways.setdefault(stages, []).append(group.label)
    return dict(sorted(ways.items()))


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
            group.label
            for group in groups
            if group.settings.get("eval.split") == "train" and group.settings.get("steps")
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
