"""Rank correlation between model sizes: do algorithms keep their order on the next larger model?

The arms of such a study are named ALGORITHM_SIZE, e.g. spo_5m. For two neighbouring sizes this is
Kendall's tau-b of the algorithms' means: 1 for the same order, -1 for the reversed one. The ends of
its interval are percentiles of a bootstrap over seeds and problems. Two sizes that are evaluated on
the same problems draw the same ones. Of S seeds, S - 1 are drawn (Rao and Wu 1988, J. Am. Stat.
Assoc. 83): the mean of S drawn ones would spread too little if S is small.

A pair of algorithms inverts if the 95 % intervals of its differences at the two sizes lie on
opposite sides of 0. Each interval is that of a single pair.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise, permutations, product

import numpy as np
import pandas as pd

from analysis.comparisons import SIGNIFICANCE, PairedDifference
from analysis.groups import ScoredGroup
from analysis.metrics import align_grids

SIZED = re.compile(r"(.+)_(\d+)m")  # algorithm and millions of parameters
DRAWS = 2000


def rank_table(models: Sequence[ScoredGroup], pairs: Sequence[PairedDifference]) -> pd.DataFrame:
    """Return ranks.csv: a row for each pass@k and two neighbouring sizes that share algorithms.

    `smaller` and `larger` are the orders of the algorithms at both sizes. `inverted` are the pairs
    that invert, as `a/b` with a above b at the smaller size; * if both differences are separated
    after correction too.
    """
    sizes: dict[int, dict[str, ScoredGroup]] = {}
    for model in models:
        if named := SIZED.fullmatch(model.label):
            sizes.setdefault(int(named[2]), {})[named[1]] = model
    known = {(d.metric, d.a, d.b): d for pair in pairs for d in (pair, pair.reversed())}
    metrics = dict.fromkeys(pair.metric for pair in pairs if pair.metric.startswith("pass@"))
    rows = []
    for metric, two in product(metrics, pairwise(sorted(sizes))):
        groups = [{n: g for n, g in sizes[size].items() if metric in g.grids} for size in two]
        names = [name for name in groups[0] if name in groups[1]]
        if len(names) < 2:
            continue
        drawn = [_drawn([of_size[name] for name in names], metric) for of_size in groups]
        taus = kendall(*drawn)
        single = min(len(group.grids[metric].seeds) for of in groups for group in of.values()) < 2
        ends = (np.nan, np.nan) if single else np.nanpercentile(taus[1:], (2.5, 97.5))
        orders = [" > ".join(names[i] for i in np.argsort(-means[0])) for means in drawn]
        inverted = []
        for a, b in permutations(names, 2):
            above, below = (known[metric, f"{a}_{size}m", f"{b}_{size}m"] for size in two)
            if above.difference.low > 0 > below.difference.high:
                p = max(above.corrected_p, below.corrected_p)
                inverted.append(f"{a}/{b}{'*' * (p < SIGNIFICANCE)}")
        sized = (f"{size}m" for size in two)
        rows.append((metric, *sized, len(names), taus[0], *ends, *orders, ", ".join(inverted)))
    columns = ["metric", "from", "to", "algorithms", "tau", "tau_low", "tau_high"]
    return pd.DataFrame(rows, columns=[*columns, "smaller", "larger", "inverted"])


def _drawn(groups: Sequence[ScoredGroup], metric: str) -> np.ndarray:
    """Return the groups' means (1 + DRAWS, groups): as measured, then of the bootstrap."""
    values, weights = align_grids([group.grids[metric] for group in groups])
    shared = (weights > 0).any(axis=2).all(axis=0)  # seeds of all groups
    values, weights = values[:, shared], weights[:, shared]
    (_, seeds, problems) = weights.shape
    names = "".join(sorted({name for group in groups for name in group.grids[metric].problems}))
    of_problems = np.random.default_rng(zlib.crc32(names.encode()))
    of_seeds = np.random.default_rng(zlib.crc32(groups[0].label.encode()))
    times = of_problems.multinomial(problems, np.full(problems, 1 / problems), DRAWS)
    taken = of_seeds.multinomial(max(seeds - 1, 1), np.full(seeds, 1 / seeds), DRAWS)
    times, taken = (np.vstack([np.ones(part.shape[1]), part]) for part in (times, taken))
    of_seed = (weights * values) @ times.T / (weights @ times.T)  # (groups, seeds, draws)
    return np.einsum("gsd,ds->dg", of_seed, taken) / taken.sum(axis=1, keepdims=True)


def kendall(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Kendall's tau-b over the last axis; NaN if either has no order at all."""
    i, j = np.triu_indices(a.shape[-1], 1)
    x, y = (np.sign((means[..., i] - means[..., j]).round(12)) for means in (a, b))
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=-1) / np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))
