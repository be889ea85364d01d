"""The metrics reported of a model: names, titles, meanings and bounds.

Each metric has one value and one weight per problem (`analysis.scores`). The reported
number, for which intervals are given, is the weighted mean over problems.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from sys import intern

from rapidfuzz.distance import Levenshtein

from analysis.pass_at_k import pass_at_k

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
    passed = (
        "Chance that one of k samples is accepted (Chen et al. 2021, eq. 1), mean over problems."
    )
    distinct = (
        "Expected number of distinct accepted programs among k samples, by normal form; unbiased. "
        "Defined on every problem, solved or not. Mean over problems."
    )
    return (
        *(Metric(f"pass@{k}", f"pass@{k}", passed) for k in ks),
        *(
            Metric(f"{DISTINCT_ACCEPTED}{k}", f"distinct accepted of {k}", distinct)
            for k in ks
            if k > 1
        ),
        *DIVERSITY,
    )


DIVERSITY = (
    Metric(
        DISTINCT,
        f"distinct of {DRAWN}",
        f"Share of distinct programs among {DRAWN} accepted ones (rarefaction, Hurlbert 1971), by "
        f"normal form. Mean over problems with at least {DRAWN} accepted samples.",
    ),
    Metric(
        "distinct_ratio",
        "distinct / accepted",
        "Distinct / accepted programs. Falls as more are accepted, so it flatters weak models.",
    ),
    Metric(
        "edit_distance",
        "edit distance",
        "Token edit distance of two accepted programs of a problem, over the longer one's length.",
    ),
    Metric("distinct_2", "distinct-2", "Distinct / all pairs of adjacent program tokens."),
    Metric("token_entropy", "token entropy", "Of the next-token distribution, in nats."),
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


CACHED_LENGTH = 1024  # characters; tokens of longer programs are not cached
_TOKEN = re.compile(
    r"""\s++ | \#[^\n]*
      | ("(?:\\.|[^"\\\n]++)*+"? | '(?:\\.|[^'\\\n]++)*+'?
      | \d[\w.]* | \w+
      | \*\*=? | //=? | <<=? | >>=? | [-+*/%&|^=<>!:]= | -> | [^\w\s])""",
    re.VERBOSE,
)


def program_tokens(program: str) -> tuple[str, ...]:
    """Return names, numbers, strings and operators, without layout and comments; never fails.

    An unclosed string is one token up to the end of its line. Otherwise each of its quotes would
    be tried again, and a long line of \\" would take quadratic time.
    """
    return _cached_tokens(program) if len(program) <= CACHED_LENGTH else _tokens(program)


def _tokens(program: str) -> tuple[str, ...]:
    # The group is empty for blanks and comments. Interning keeps one copy of each token.
    return tuple(map(intern, filter(None, _TOKEN.findall(program))))


_cached_tokens = lru_cache(maxsize=1 << 17)(_tokens)  # one or two kilobytes each


def distinct_ratio(forms: Sequence[str]) -> float:
    """Return distinct forms / forms, for at least one accepted program.

    Biased: it falls as more samples are accepted, even if the model's distribution over right
    programs stays the same, because programs repeat more often. To compare models with different
    pass@1, use `distinct_share`.
    """
    return len(set(forms)) / len(forms)


def distinct_share(forms: Sequence[str], m: int) -> float:
    """Return the expected distinct forms among m accepted programs without replacement, over m.

    Rarefaction (Hurlbert 1971): E[distinct] = Σ_j 1 - C(c - c_j, m)/C(c, m) for c accepted programs
    of which c_j have form j. Its expectation does not depend on c, so models with different
    acceptance rates can be compared. In [1/m, 1]. Raises ValueError for fewer than m programs.
    """
    counts = Counter(forms).values()
    return sum(pass_at_k(len(forms), count, m) for count in counts) / m


def distinct_accepted(forms: Sequence[str], n: int, k: int) -> float:
    """Return the expected number of distinct accepted programs among k of n samples.

    `forms` are those of the accepted samples. E = Σ_j 1 − C(n − c_j, k)/C(n, k) over draws without
    replacement, for c_j samples of form j: rarefaction over all samples, so it is defined without
    accepted ones too, and its expectation does not depend on n. In [0, k]. Raises ValueError for
    n < k.
    """
    return sum(pass_at_k(n, count, k) for count in Counter(forms).values())


def distinct_n(programs: Sequence[str], n: int) -> float | None:
    """Return distinct n-grams of program tokens / all n-grams, over all samples of a problem.

    Li et al. 2016 (1510.03055), §5.2, there for dialogue. Right and wrong programs count, names as
    written. The value falls with the number of samples and their length, so compare at equal
    counts. None if no program has n tokens.
    """
    grams: set[tuple[str, ...]] = set()
    total = 0
    for program, count in Counter(programs).items():
        tokens = program_tokens(program)
        grams.update(zip(*(tokens[i:] for i in range(n)), strict=False))
        total += count * max(0, len(tokens) - n + 1)
    return len(grams) / total if total else None


def mean_edit_distance(forms: Sequence[str], *, max_pairs: int = 60, seed: int = 0) -> float:
    """Return the mean normalised token edit distance over pairs of accepted programs, in [0, 1].

    The distance is Levenshtein's between the tokens of two forms / the longer one's length, and 0
    for equal forms. As a mean over pairs, its expectation does not depend on the number accepted.
    If the distinct forms make more than `max_pairs` pairs, the mean over unequal pairs is estimated
    from that many, drawn with `seed`. Needs at least two programs.
    """
    counts = Counter(forms)
    pairs = list(combinations(sorted(counts), 2))
    if not pairs:
        return 0.0
    weights = [counts[a] * counts[b] for a, b in pairs]
    share_unequal = sum(weights) / (len(forms) * (len(forms) - 1) / 2)
    if len(pairs) > max_pairs:
        pairs = random.Random(seed).choices(pairs, weights, k=max_pairs)
        weights = [1] * max_pairs
    tokens = {form: program_tokens(form) for form in counts}
    total = 0.0
    for (a, b), weight in zip(pairs, weights, strict=True):
        total += weight * Levenshtein.normalized_distance(tokens[a], tokens[b])
    return share_unequal * total / sum(weights)
