"""Each group against a control: Dunnett's test where its assumptions hold, Holm's as a bound."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from analysis.comparisons import (
    control_differences,
    control_table,
    correlation,
    p_values,
    paired_differences,
    with_control,
)
from analysis.intervals import moderate, seed_spread
from analysis.metrics import ScoreGrid

HALVES = np.full((3, 3), 0.5) + np.eye(3) / 2


def group(label, means):
    values = np.asarray(means, dtype=float)[:, None] + np.zeros((len(means), 20))
    problems = tuple(f"p{i}" for i in range(20))
    grid = ScoreGrid(tuple(range(len(means))), problems, values, np.ones_like(values))
    return SimpleNamespace(label=label, seeds=grid.seeds, grids={"pass@1": grid})


@pytest.fixture(scope="module")
def four():
    """A control and three arms of equal spread, 40 seeds each, the last one above."""
    random = np.random.default_rng(3)
    means = random.normal(0.5, 0.05, (4, 40)) + np.array([[0], [0.004], [-0.02], [0.04]])
    return dict(zip(("sft", "ppo", "raft", "spo"), means, strict=True))


def test_the_least_p_value_is_dunnetts(four):
    groups = [group(label, means) for label, means in four.items()]
    found = control_differences(paired_differences(groups, ["pass@1"]), "sft")
    arms = [four[pair.a] for pair in found]
    dunnett = stats.dunnett(*arms, control=four["sft"])
    place = int(np.argmin(dunnett.pvalue))
    assert [pair.a for pair in found] == ["ppo", "raft", "spo"]
    assert {pair.b for pair in found} == {"sft"}
    assert found[place].a == "spo" and found[place].separated
    assert found[place].adjusted_p == pytest.approx(dunnett.pvalue[place], abs=2e-3)
    # Later steps correct for fewer comparisons.
    others = [i for i in range(3) if i != place]
    assert all(found[i].adjusted_p <= dunnett.pvalue[i] + 0.01 for i in others)
    assert [pair.difference.mean for pair in found] == pytest.approx(
        [arm.mean() - four["sft"].mean() for arm in arms]
    )


def test_the_correlation_is_the_controls_share_of_both_variances_up_to_one_half(four):
    random = np.random.default_rng(0)
    steady = four | {"sft": 0.5 + random.normal(0, 0.01, 40)}
    wild = four | {"sft": 0.5 + random.normal(0, 0.4, 40)}
    for arms, ends in ((steady, (0.0, 0.1)), (four, (0.4, 0.5)), (wild, (0.5, 0.5))):
        groups = [group(label, means) for label, means in arms.items()]
        pairs = paired_differences(groups, ["pass@1"])
        found = correlation([pair.reversed() for pair in pairs if pair.a == "sft"], pairs)
        assert np.diag(found) == pytest.approx(1)
        assert ends[0] <= found[0, 1] == found[1, 0] <= ends[1]


def test_with_few_seeds_a_part_of_the_freedom_of_other_arms_counts(four):
    for seeds, share in ((2, 1 / 2), (3, 7 / 8), (5, 31 / 32)):
        groups = [group(label, means[:seeds]) for label, means in four.items()]
        difference = paired_differences(groups, ["pass@1"])[0].estimate
        own = seeds - 1
        assert difference.seed_freedom > own
        found = with_control(difference, 0.0)
        assert found.seed_freedom - own == pytest.approx(share * (difference.seed_freedom - own))
        assert found.seed_variance == difference.seed_variance


def test_the_controls_variance_is_not_moderated_to_less_than_its_own(four):
    """Where it spreads more than the others, but not enough to keep its own spread."""
    spread = np.array([-0.1, 0.02, 0.08])
    arms = {label: means[:3] for label, means in four.items()} | {"sft": 0.5 + spread}
    groups = [group(label, means) for label, means in arms.items()]
    pair = paired_differences(groups, ["pass@1"])[0]
    own, freedom = seed_spread(np.array(list(arms.values())))
    moderated, _ = moderate(own, freedom)
    assert pair.lowered == pytest.approx(tuple(np.maximum(own - moderated, 0)[:2]))
    assert pair.a == "sft" and pair.lowered[0] > 0
    assert pair.reversed().lowered == pair.lowered[::-1]
    found = with_control(pair.estimate, pair.lowered[0]).seed_variance
    assert found == pytest.approx((own[0] + moderated[1]) / 3)


def test_without_the_control_there_is_no_comparison_and_a_margin_makes_answers(four):
    groups = [group(label, means) for label, means in four.items()]
    pairs = paired_differences(groups, ["pass@1"])
    assert control_differences(pairs, None) == control_differences(pairs, "dpo") == []
    assert control_table([]).empty
    table = control_table(control_differences(pairs, "sft", 0.05)).set_index("group")
    assert table.loc["ppo", "answer"] == "equal" and table.loc["spo", "answer"] == "above"
    assert set(table["control"]) == {"sft"} and table["difference"]["raft"] < 0
    # Equality is corrected by Holm over the same three comparisons.
    family = control_differences(pairs, "sft", 0.05)
    assert max(pair.equal_p for pair in family) <= 1 and len(p_values(family)) == 3
