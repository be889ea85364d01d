"""Headline statements: the groups ahead, their differences, and detectable differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.comparisons import (
    ANSWERS,
    EQUAL,
    SIGNIFICANCE,
    UNDECIDED,
    ContrastTest,
    PairedDifference,
    letters,
    mean_score,
    tier_table,
)
from analysis.experiment import Experiment, Headline
from analysis.groups import join_names
from analysis.metrics import DISTINCT, TITLES
from analysis.power import smallest_difference

MOST_WITH_MEANS = 6  # groups shown with their means everywhere; if more, only once, in order
MOST_BASES = 3  # models before training whose means are said
MOST_RANKED = 15  # groups named behind the first; the table of results has all
ONE_TRAINING = (
    "No two groups share two seeds, so differences between algorithms cannot be separated from "
    "training randomness, and nothing is tested."
)

Ahead = Mapping[str, tuple[str, ...]]  # label → labels that it is significantly ahead of


def headline_metrics(experiment: Experiment) -> list[str]:
    """Return the metrics of the headlines: pass@k for the least and greatest k, and diversity."""
    least, greatest = experiment.ks[0], experiment.ks[-1]
    return list(dict.fromkeys([f"pass@{least}", f"pass@{greatest}", DISTINCT]))


def headlines(experiment: Experiment) -> list[Headline]:
    """Return a headline per metric; with a single group, its change from the base."""
    if not experiment.trained:
        return []
    if len(experiment.trained) == 1:
        return [Headline("", (_single_group(experiment),))]
    if max(pair.seeds for pair in experiment.pairs) < 2:
        return [Headline("", (ONE_TRAINING,))]
    tiers = tier_table(experiment.trained, experiment.pairs)
    by_metric = [_metric_headline(experiment, tiers, m) for m in headline_metrics(experiment)]
    return [headline for headline in by_metric if headline.statements]


def _single_group(experiment: Experiment) -> str:
    (model,) = experiment.trained
    changes = []
    for metric in headline_metrics(experiment) if len(experiment.bases) == 1 else []:
        before, after = mean_score(experiment.bases[0], metric), mean_score(model, metric)
        if not math.isnan(before) and not math.isnan(after):
            changes.append(f"{TITLES.get(metric, metric)} {before:.3f} → {after:.3f}")
    change = f" From the base to the end of training: {', '.join(changes)}." if changes else ""
    return f"Only {model.label} was trained here, so there is nothing to compare it with.{change}"


def _metric_headline(experiment: Experiment, tiers: pd.DataFrame, metric: str) -> Headline:
    """State who leads, the greatest differences, what was named ahead, letters and power."""
    pairs = [pair for pair in experiment.pairs if pair.metric == metric]
    order = list(tiers.loc[tiers["metric"] == metric, "label"])
    title = TITLES.get(metric, metric)
    if len(order) < 2:
        return Headline(title, ())
    if max(pair.seeds for pair in pairs) < 2:
        return Headline(title, (ONE_TRAINING,))
    means = {model.label: f"{mean_score(model, metric):.3f}" for model in experiment.trained}
    with_means = {label: f"{label} ({means[label]})" for label in order}
    many = len(order) > MOST_WITH_MEANS
    ahead = {a: tuple(b for b in order if _is_ahead(pairs, a, b)) for a in order}
    if many:
        statements = _best_of_many(experiment, pairs, order, ahead, with_means)
    else:
        statements = _separations(order, ahead, with_means)
        statements += _differences_of_best(pairs, order, ahead)
    statements += contrast_statements([c for c in experiment.contrasts if c.pair.metric == metric])
    statements += control_statements([d for d in experiment.against_control if d.metric == metric])
    if many:
        ranked = join_names([with_means[label] for label in order], MOST_RANKED)
        statements.append(f"By mean: {ranked}.")
    separated = [(pair.a, pair.b) for pair in pairs if pair.separated]
    if len(order) > 2 and separated and not many:  # of many, the page has a table
        statements.append(_letters(letters(order, separated)))
    statements += equality_statements(pairs)
    if power := _detectable(pairs):
        statements.append(power)
    return Headline(title, tuple(statements))


def _best_of_many(
    experiment: Experiment,
    pairs: Sequence[PairedDifference],
    order: Sequence[str],
    ahead: Ahead,
    named: Mapping[str, str],
) -> list[str]:
    """State the best mean, who is not separated from it, who is, and where the rest is found."""
    best, behind = order[0], ahead[order[0]]
    minus_best = {label: find_pair(pairs, label, best) for label in order[1:]}
    second = minus_best[order[1]]
    problems = f"{second.problems} problem{'s' * (second.problems != 1)}"
    difference, _, ends = format_difference(second).partition(" ")
    interval = f", 95 % interval {ends}" if ends else ""
    significantly = "significantly" if order[1] in behind else "not significantly"
    statements = [
        f"Highest mean over {second.seeds} seeds and {problems}: {named[best]}. Next is "
        f"{named[order[1]]}, {significantly} lower (difference {difference}{interval})."
    ]
    statements += _before_training(experiment, pairs[0].metric)
    if alike := [label for label in order[1:] if label not in behind]:
        listed = join_names([named[label] for label in alike], MOST_RANKED)
        statements.append(
            f"No significant difference from {best}: {listed}.{_overtaken(minus_best, alike)}"
        )
    if behind:
        lower = f"{behind[0]}, {format_difference(minus_best[behind[0]])}"
        if len(behind) > 1:
            last = f"{behind[-1]}, {format_difference(minus_best[behind[-1]])}"
            lower = f"{len(behind)} of the other {len(order) - 1}, from {lower} to {last}"
        test = f"5 % level, corrected for all {len(pairs)} pairs"
        statements.append(f"Significantly below {best} ({test}): {lower}.")
    statements.append(
        "Other pairs: groups that share a letter below do not differ significantly (letters.csv)."
    )
    return statements


def _before_training(experiment: Experiment, metric: str) -> list[str]:
    """State the means of the models that training began with, if they are few."""
    scores = [
        (base.label.removeprefix("base ").removeprefix("name="), mean_score(base, metric))
        for base in experiment.bases
    ]
    known = [(label, score) for label, score in scores if not math.isnan(score)]
    if not 0 < len(known) <= MOST_BASES:
        return []
    if len(known) == 1:
        return [f"Before training: {known[0][1]:.3f}."]
    return [f"Before training: {join_names([f'{label} ({s:.3f})' for label, s in known])}."]


def _overtaken(minus_best: Mapping[str, PairedDifference], alike: Sequence[str]) -> str:
    """Say why the last group of `alike` is there though a higher mean is significantly below.

    Its interval is wider. "" if no higher mean is, or if its interval is not wider.
    """
    lowest = minus_best[alike[-1]]
    above = list(minus_best)[: list(minus_best).index(lowest.a)]
    for label in (label for label in above if label not in alike):
        pair = minus_best[label]
        if _width(lowest) > _width(pair):
            return (
                f" The difference of {lowest.a}, {format_difference(lowest)}, is less certain than "
                f"that of {label}, {format_difference(pair)}, which is significant."
            )
    return ""


def _width(pair: PairedDifference) -> float:
    return pair.difference.high - pair.difference.low


def _is_ahead(pairs: Sequence[PairedDifference], a: str, b: str) -> bool:
    if a == b:
        return False
    pair = find_pair(pairs, a, b)
    return pair.separated and pair.difference.mean > 0


def find_pair(pairs: Sequence[PairedDifference], a: str, b: str) -> PairedDifference:
    """Return a - b from pairs of either order. Raises KeyError if there is none."""
    for pair in pairs:
        if (pair.a, pair.b) == (a, b):
            return pair
        if (pair.a, pair.b) == (b, a):
            return pair.reversed()
    raise KeyError((a, b))


def _separations(order: Sequence[str], ahead: Ahead, names: Mapping[str, str]) -> list[str]:
    """Return a statement per set of groups that are ahead of the same others, best first."""
    leaders: dict[tuple[str, ...], list[str]] = {}
    for label in order:
        if ahead[label]:
            leaders.setdefault(ahead[label], []).append(label)
    if not leaders:
        if len(order) == 2:
            return [f"The data do not separate {names[order[0]]} from {names[order[1]]}."]
        return [f"The data do not separate any two of {join_names(list(names.values()))}."]
    statements = []
    for behind, labels in leaders.items():
        above = join_names([names[label] for label in labels])
        verb = "are each" if len(labels) > 1 else "is"
        below = join_names([names[label] for label in behind])
        statements.append(f"{above} {verb} above {below}.")
    return statements


def _differences_of_best(
    pairs: Sequence[PairedDifference], order: Sequence[str], ahead: Ahead
) -> list[str]:
    """Return the best group's difference to the next, and to the ends of those it is ahead of."""
    best, behind = order[0], ahead[order[0]]
    others = dict.fromkeys([order[1], *behind[:1], *behind[-1:]])
    return [_difference_statement(find_pair(pairs, best, other), len(pairs)) for other in others]


def _letters(shown: Mapping[str, str]) -> str:
    """State each group's letters, best group first."""
    named = join_names([f"{label} {letters}" for label, letters in shown.items()], MOST_RANKED)
    return f"Groups that share a letter are not separated: {named}."


def _difference_statement(pair: PairedDifference, pairs: int) -> str:
    if pair.seeds == 0:
        return f"{pair.a} and {pair.b} share no seed or problem and are not compared."
    statement = f"{pair.a} − {pair.b}: {format_difference(pair)}"
    if pair.seeds == 1:
        return f"{statement} on 1 seed, without an interval."
    d = pair.difference
    if (d.low > 0 or d.high < 0) and not pair.separated:
        family = f" (Holm, {pairs} pairs)" if pairs > 1 else ""
        statement += f", not separated by the stricter test{family}"
    problems = f"{pair.problems} problem{'s' * (pair.problems != 1)}"
    return f"{statement}; {pair.seeds} seeds, {problems}."


def format_difference(pair: PairedDifference) -> str:
    """Return +0.052 [−0.020, 0.124], without the interval if it is unknown."""
    d = pair.difference
    if math.isnan(d.mean):
        return "–"
    ends = f" [{d.low:+.3f}, {d.high:+.3f}]" if has_width(pair) else ""
    return f"{d.mean:+.3f}{ends}".replace("-", "−")


def has_width(pair: PairedDifference) -> bool:
    """Return whether the difference has an interval, and not one from d to d.

    That is so where two groups differ by the same on every problem, as where both solve none.
    """
    return _width(pair) > 1e-9


def _detectable(pairs: Sequence[PairedDifference]) -> str:
    """State the detectable difference if some pair is not separated, else ""."""
    unseparated = [pair for pair in pairs if not pair.separated and pair.seeds > 1]
    smallest = [float(smallest_difference(pair.estimate)) for pair in unseparated]
    # 0.000: the two differ by the same on every problem, so nothing is known of the noise
    known = [size for size in smallest if math.isfinite(size) and _size(size) != "0.000"]
    if not known:
        return ""
    low, high = min(known), max(known)
    if low >= 1:
        return "This design could not have detected any difference, however large."
    sizes = list(dict.fromkeys([_size(low), _size(min(high, 1))]))
    return (
        "Not separated does not mean equal: most such comparisons would detect only a true "
        f"difference of {' to '.join(sizes)} or more."
    )


def _size(difference: float) -> str:
    return f"{difference:.2f}" if difference >= 0.01 else f"{difference:.3f}"


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
        text = format_difference(pair) if intervals else _short(pair.difference.mean)
        mean, bracket, ends = text.partition(" [")
        mean += " †" if pair.contrast_p < SIGNIFICANCE else ""
        mean += " =" if pair.answer == EQUAL else ""
        text = f"{mean}{bracket}{ends}"
        if intervals and not has_width(pair) and not math.isnan(pair.difference.low):
            text += f" [{pair.problems} problems]"
        return text + (" *" if pair.separated else "")

    rows = [[a, *("" if a == b else cell(find_pair(pairs, a, b)) for b in labels)] for a in labels]
    return ["row − column", *labels], rows


def _short(difference: float) -> str:
    if math.isnan(difference):
        return "–"
    return "0.00" if abs(difference) < 0.005 else f"{difference:+.2f}".replace("-", "−")


MOST_PAIRS = 6  # listed in a statement; the tables have all
MOST_GROUPS = 15


def contrast_statements(contrasts: Sequence[ContrastTest]) -> list[str]:
    """State the contrasts of one metric, the decided ones by name; [] if none was tested."""
    if all(math.isnan(one.p) for one in contrasts):
        return []
    decided = [contrast_phrase(one) for one in contrasts if one.answer != UNDECIDED]
    open_ones = len(contrasts) - len(decided)
    parts = _listed(decided, "contrasts.csv")
    parts += [f"{open_ones} not decided"] * bool(open_ones)
    many = len(contrasts)
    alone = f"{many} pairs; corrected for these alone, so smaller differences can be significant"
    family = alone if many > 1 else "1 pair"
    return [f"Named before the runs ({family}): {'; '.join(parts)}."]


def contrast_phrase(one: ContrastTest) -> str:
    """Say what a decided contrast found: "a above b", or "a less than 0.05 below b"."""
    a, b = one.pair.a, one.pair.b
    if not one.margin:
        return f"{a} {one.answer} {b}"
    amount = "less" if one.answer == "above" else "more"
    return f"{a} {amount} than {one.margin:g} below {b}"


def control_statements(differences: Sequence[PairedDifference]) -> list[str]:
    """State one metric's comparisons with the control; [] without a control."""
    if not differences:
        return []
    if all(math.isnan(one.adjusted_p) for one in differences):
        return [
            f"Against {differences[0].b} nothing was tested: no group shares two seeds with it."
        ]
    parts = []
    for answer in ANSWERS:
        if labels := [one.a for one in differences if one.answer == answer]:
            within = f" within {differences[0].margin:g}" if answer == EQUAL else ""
            parts.append(f"{answer}{within}: {join_names(labels, MOST_GROUPS)}")
    many = f"{len(differences)} comparison{'s' * (len(differences) != 1)}"
    return [f"Against {differences[0].b} alone (Dunnett, {many}), {'; '.join(parts)}."]


def equality_statements(pairs: Sequence[PairedDifference]) -> list[str]:
    """State which pairs of one metric are equal within the margin, and what deciding takes."""
    tested = [pair for pair in pairs if not math.isnan(pair.equal_p)]
    if not tested:
        return []
    margin = f"{tested[0].margin:g}"
    statements = []
    if equal := [f"{pair.a} and {pair.b}" for pair in tested if pair.answer == EQUAL]:
        listed = "; ".join(_listed(equal, "differences.csv"))
        statements.append(f"Equal within {margin}: {listed}.")
    if open_ones := [pair for pair in tested if pair.answer == UNDECIDED]:
        count = f"{len(open_ones)} of {len(tested)} pair{'s' * (len(tested) != 1)}"
        statements.append(f"Not decided within {margin}: {count}; {decision_needs(open_ones)}.")
    return statements


def decision_needs(pairs: Sequence[PairedDifference]) -> str:
    """Say how many seeds an answer would take, or where these do not suffice how many problems."""
    parts = []
    by_seeds = [p.seeds_to_decide for p in pairs if math.isfinite(p.seeds_to_decide)]
    others = [p for p in pairs if not math.isfinite(p.seeds_to_decide)]
    by_problems = [p.problems_to_decide for p in others if math.isfinite(p.problems_to_decide)]
    if by_seeds:
        parts.append(f"an answer takes {_range(by_seeds)} seeds")
    if by_problems:
        of = f"for {len(by_problems)} of them " * bool(by_seeds)
        parts.append(f"{of}no number of seeds suffices, but {_range(by_problems)} problems would")
    if left := len(others) - len(by_problems):
        of = f"for {left} of them " * (left < len(pairs))
        parts.append(f"{of}an answer takes more of both seeds and problems")
    return ", ".join(parts)


def _range(numbers: Sequence[float]) -> str:
    low, high = f"{min(numbers):,.0f}", f"{max(numbers):,.0f}"
    return low if low == high else f"{low} to {high}"


def _listed(texts: Sequence[str], file: str) -> list[str]:
    more = len(texts) - MOST_PAIRS
    return [*texts[:MOST_PAIRS], *([f"{more} more ({file})"] if more > 0 else [])]
