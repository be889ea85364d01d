"""The metrics reported of a model: names, titles, meanings and bounds.

Each metric has one value and one weight per problem (`analysis.metrics.scores`). The reported
number, for which intervals are given, is the weighted mean over problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DRAWN = 5  # accepted programs per problem that distinct_of_5 draws
DISTINCT = f"distinct_of_{DRAWN}"
DISTINCT_ACCEPTED = "distinct_accepted@"  # and k
FURTHER = " (T="  # and a temperature, in the name of a metric at a further temperature


@dataclass(frozen=True, slots=True)
class Metric:
    """A reported number: its column name, its heading and its meaning in words."""

    name: str
    title: str
    meaning: str


def pass_metric(k: int) -> Metric:
    """Return the definition of pass@k."""
    meaning = (
        f"Chance that at least one of {k} samples is accepted; unbiased estimate (Chen et al. "
        "2021, eq. 1), mean over problems."
    )
    if k == 1:
        meaning = "Share of samples that are accepted, mean over problems."
    return Metric(f"pass@{k}", f"pass@{k}", meaning)


def distinct_metric(k: int) -> Metric:
    """Return the definition of distinct_accepted@k."""
    meaning = (
        f"Expected number of distinct accepted programs among {k} samples, by normal form of the "
        "syntax tree; unbiased. Defined on every problem, solved or not, so all groups are "
        "averaged over the same problems. Mean over problems."
    )
    return Metric(f"{DISTINCT_ACCEPTED}{k}", f"distinct accepted of {k}", meaning)


def at_temperature(name: str, temperature: float) -> str:
    """Return the name, or the title, of a metric at a further temperature: pass@10 (T=1)."""
    return f"{name}{FURTHER}{temperature:g})"


def without_temperature(metric: str) -> str:
    """Return the name of the main metric: pass@10 of pass@10 (T=1)."""
    return metric.partition(FURTHER)[0]


def further_metrics(ks: Sequence[int], temperatures: Sequence[float]) -> tuple[Metric, ...]:
    """Return `reported_metrics(ks)` at each of `eval.further_temperatures`."""
    return tuple(
        Metric(
            at_temperature(metric.name, temperature),
            at_temperature(metric.title, temperature),
            f"{metric.meaning} Samples at temperature {temperature:g}.",
        )
        for temperature in temperatures
        for metric in reported_metrics(ks)
    )


def reported_metrics(ks: Sequence[int]) -> tuple[Metric, ...]:
    """Return pass@k and distinct_accepted@k for these k, then the other diversity metrics.

    There is no distinct_accepted@1: one accepted sample is one distinct program, as in pass@1.
    """
    return (*map(pass_metric, ks), *(distinct_metric(k) for k in ks if k > 1), *DIVERSITY)


DIVERSITY = (
    Metric(
        DISTINCT,
        f"distinct of {DRAWN}",
        f"Expected share of distinct programs among {DRAWN} accepted ones drawn from a problem's "
        "samples (rarefaction, Hurlbert 1971), by normal form of the syntax tree. Comparable "
        f"between models with different pass@1. Mean over problems with at least {DRAWN} accepted "
        "samples, which are the easier ones for a weak model.",
    ),
    Metric(
        "distinct_ratio",
        "distinct / accepted",
        "Distinct programs / accepted programs, both counted within problems and summed over them. "
        "Falls as more samples are accepted, so it flatters weak models.",
    ),
    Metric(
        "edit_distance",
        "edit distance",
        "Mean token edit distance between two accepted programs of a problem, over the longer "
        "one's length, after normalisation; 0 where they are the same. Mean over problems with at "
        "least 2 accepted samples.",
    ),
    Metric(
        "distinct_2",
        "distinct-2",
        "Distinct pairs of adjacent program tokens / all of them, over all samples of a problem, "
        "right or wrong (Li et al. 2016). Mean over problems.",
    ),
    Metric(
        "token_entropy",
        "token entropy",
        "Entropy in nats of the model's own next-token distribution, at temperature 1 without "
        "top-p, mean over all sampled tokens.",
    ),
)
PARTIAL = (DISTINCT, "edit_distance")  # defined only where enough samples are accepted
UPPER_BOUNDS = {"token_entropy": float("inf")}  # k for distinct_accepted@k, 1 for all others
TITLES = {metric.name: metric.title for metric in DIVERSITY}


def metric_bounds(metric: str) -> tuple[float, float]:
    """Return the least and the greatest possible value of a metric."""
    metric = without_temperature(metric)
    if metric.startswith(DISTINCT_ACCEPTED):
        return 0.0, float(metric.removeprefix(DISTINCT_ACCEPTED))
    return 0.0, UPPER_BOUNDS.get(metric, 1.0)
