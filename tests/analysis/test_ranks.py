"""Rank correlation between sizes: known, reversed and random orders, and pairs that invert."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import kendalltau

from analysis.comparisons import paired_differences
from analysis.metrics import ScoreGrid
from analysis.ranks import kendall, rank_table

NAMES = ("sft", "raft", "spo", "ppo", "grpo")
FIRST = (0.1, 0.2, 0.3, 0.4, 0.5)


def ranks(means, seeds=3, noise=0.05, lacking=()):
    """The table of these algorithms' means by size, each with problems of its own.

    The arms `lacking` have no seed 1.
    """
    random, groups = np.random.default_rng(3), []
    for size, place in product([*means, "alone"], range(len(NAMES))):
        values = means.get(size, FIRST)[place] + random.normal(0, noise, (seeds, 100))
        problems = tuple(f"{size}/{i:03}" for i in range(100))
        label = f"{NAMES[place]}_{size}"
        kept = [seed for seed in range(seeds) if label not in lacking or seed != 1]
        scores = ScoreGrid(tuple(kept), problems, values[kept], np.ones_like(values[kept]))
        groups.append(SimpleNamespace(label=label, grids={"pass@1": scores}))
    return rank_table(groups, paired_differences(groups, ["pass@1"]))


@pytest.mark.parametrize(
    ("second", "tau", "inverted"),
    [(FIRST, 1, 0), (FIRST[::-1], -1, 10), ((0.2, 0.1, *FIRST[2:]), 0.8, 1)],
)
def test_a_known_order_has_its_tau_and_the_pairs_that_invert(second, tau, inverted):
    """10m follows 9m, as a number; the interval has no width where nothing is in doubt."""
    row = ranks({"10m": second, "9m": FIRST}).iloc[0]
    assert (row["from"], row["to"], row["algorithms"]) == ("9m", "10m", 5)
    assert [row["tau"], row["tau_low"], row["tau_high"]] == pytest.approx([tau] * 3)
    assert row["smaller"] == "grpo > ppo > spo > raft > sft"
    assert row["inverted"].count("*") == inverted and ("raft/sft*" in row["inverted"]) == (tau < 1)


def test_sizes_are_compared_on_the_seeds_that_all_their_arms_have():
    arms = [f"{name}_5m" for name in NAMES]
    one, all_ = (ranks({"1m": FIRST, "5m": FIRST}, 3, 2, of) for of in (arms[:1], arms))
    whole = ranks({"1m": FIRST, "5m": FIRST}, 3, 2)
    ends = ["tau", "tau_low", "tau_high"]
    assert one[ends].equals(all_[ends]) and not one[ends].equals(whole[ends])
    assert ranks({"1m": FIRST, "5m": FIRST}, 2, 2, arms[:1])["tau_low"].isna().all()


def test_an_order_of_noise_is_not_decided_and_one_seed_has_no_interval():
    table = ranks({"1m": FIRST, "5m": (0.3,) * 5, "15m": FIRST}, noise=0.3)
    assert list(table["to"]) == ["5m", "15m"]  # neighbours only
    assert ((table["tau_low"] < 0) & (table["tau_high"] > 0)).all() and not any(table["inverted"])
    assert ranks({"1m": FIRST, "5m": FIRST}, seeds=1)["tau_low"].isna().all()
    a, b = np.random.default_rng(0).integers(0, 4, (2, 50, 5)).astype(float)  # with ties
    expected = [kendalltau(x, y).statistic for x, y in zip(a, b, strict=True)]
    assert kendall(a, b) == pytest.approx(np.array(expected), nan_ok=True)
