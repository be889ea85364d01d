"""No loss and no gradient depends on padding, on the order of rows, on how a batch is split, or on
dropped rows. This holds for every algorithm; docs/guide/algorithms.md says what it requires."""

from typing import get_args

import pytest
import torch

import algorithms
from algorithms.spo import LossKind
from tests.algorithms.batches import gradient, raw

# Tested beside each algorithm's defaults.
OPTIONS = {
    "spo": [
        {"q0": "monte_carlo"},
        {"q0": "group_soft"},
        {"q0": "monte_carlo", "exponent": "q"},
        *({"loss": kind} for kind in get_args(LossKind) if kind != "cross_entropy"),
    ],
    "ppo": [
        {"kl_coef": 0.0, "lam": 0.9},
        {"critic": "none", "lam": 0.95},
        {"value_unit": "turn", "lam": 0.9},
    ],
    "apa": [{"critic": "none"}],
    "vapo": [{"critic": "none", "critic_warmup": 0}],
    "pf_ppo": [{"critic": "none"}],
    "ppo_ewma": [{"critic": "none"}],
    "grpo": [
        {"aggregate": "token_mean", "kl": "k3+"},
        {"aggregate": "constant", "zero_variance": "drop", "kl": "k2"},
    ],
    "rloo": [{"kl_coef": 0.0, "aggregate": "token_mean"}],
    "opmd": [{"baseline": "log_mean_exp", "aggregate": "sequence_mean"}],
    "rec": [{"side": "ring", "importance": True}],
    "gvpo": [{"anchor": "behaviour"}],
    "rso": [{"samples": 2}],
    "maxk": [{"k": 2}],
    "pkpo": [{"k": 2}],
    "passk": [{"k": 2}],
    "kl_cov": [{"share": 0.2}],
    "clip_cov": [{"share": 0.2, "cov_low": 0.01}],
    "m2po": [{"second_moment": 0.01, "clip_low": 0.01, "clip_high": 0.01}],
}
CASES = {
    " ".join([name, *(f"{key}={value}" for key, value in options.items())]): (name, options)
    for name in algorithms.names()
    for options in [{}, *OPTIONS.get(name, [])]
}


@pytest.fixture(params=CASES, ids=str)
def algorithm(request):
    name, options = CASES[request.param]
    return algorithms.make(name, **options)


def same(ones, others):
    for one, other in zip(ones, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


# Slow: further layouts of the same property.
FURTHER = [(2, 2, "left"), (0, 0, "left")]
FURTHER_LAYOUTS = [pytest.param(layout, marks=pytest.mark.slow) for layout in FURTHER]


@pytest.mark.parametrize("layout", [(3, 2, "right"), (2, 0, "left"), *FURTHER_LAYOUTS])
def test_padding_changes_nothing(algorithm, layout):
    case = raw()
    same(gradient(algorithm, *case), gradient(algorithm, *case, layout=layout))


# In a run padding is 0, which a loss that skips NaN would count.
@pytest.mark.parametrize("case", CASES)
def test_finite_padding_changes_nothing(case):
    name, options = CASES[case]
    check_finite_padding(algorithms.make(name, **options))


def check_finite_padding(algorithm):
    """Raise AssertionError if padding or observations of 10,000 change the loss or a gradient."""
    case, large = raw(seed=10), {"padding": 1e4}
    expected = gradient(algorithm, *case)
    same(expected, gradient(algorithm, *case, layout=(2, 1, "right"), **large))
    if not has_values_of_turns(algorithm):
        same(expected, gradient(algorithm, *case, layout=(1, 2, "observed"), **large))


def has_values_of_turns(algorithm):
    return getattr(algorithm.config, "value_unit", "token") == "turn"


OF_TOKENS = [c for c, (n, o) in CASES.items() if not has_values_of_turns(algorithms.make(n, **o))]


@pytest.mark.parametrize("case", OF_TOKENS)
def test_observations_between_answers_are_stepped_over(case):
    """A conversation is learned from as its answers' tokens alone, one after the other."""
    name, options = CASES[case]
    algorithm, case = algorithms.make(name, **options), raw(seed=8)
    assert int(case[1].max()) > 4  # some response has all of the observations
    same(gradient(algorithm, *case), gradient(algorithm, *case, layout=(1, 2, "observed")))


def test_the_order_of_groups_and_of_rows_in_them_changes_nothing(algorithm):
    case = raw(seed=1)
    order = torch.tensor([5, 4, 7, 6, 11, 8, 9, 10, 2, 0, 3, 1])
    same(gradient(algorithm, *case), gradient(algorithm, *case, order=order))


@pytest.mark.parametrize("cut", [1, 5, pytest.param(7, marks=pytest.mark.slow)])
def test_micro_batches_add_up_to_the_whole(algorithm, cut):
    case = raw(seed=2)
    same(gradient(algorithm, *case), gradient(algorithm, *case, cut=cut))


def test_dropped_rows_are_in_no_mean_no_scale_and_no_denominator(algorithm):
    tensors, lengths, rewards = raw(seed=3)
    dropped = torch.tensor([1, 6, 8, 9, 10, 11])  # two rows, and a whole group
    keep = torch.ones(12, dtype=torch.bool)
    keep[dropped] = False
    other, others_lengths, others_rewards = raw(seed=4)
    swapped = {k: torch.where(keep.unsqueeze(-1), tensors[k], other[k]) for k in tensors}
    others = (
        torch.where(keep, lengths, others_lengths),
        torch.where(keep, rewards, 1 - others_rewards),
    )
    same(
        gradient(algorithm, tensors, lengths, rewards, keep=keep),
        gradient(algorithm, swapped, *others, keep=keep),
    )


def test_further_dropped_rows_in_a_group_change_nothing(algorithm):
    """Six rows of a group, some dropped, are learnt from as beside two more that are dropped."""
    tensors, lengths, rewards = raw(seed=9, rows=24)
    place = torch.arange(24) % 8
    narrow = (place != 1) & (place != 6)
    keep = narrow & ~torch.isin(torch.arange(24), torch.tensor([10, 16, 19, 23]))  # 6, 5 and 3
    online = (place != 2) | (not algorithm.needs.off_policy)
    fresh = online & (place != 5)
    loss, *wide = gradient(
        algorithm, tensors, lengths, rewards, keep=keep, online=online, fresh=fresh, group=8
    )
    alone = gradient(
        algorithm,
        {name: value[narrow] for name, value in tensors.items()},
        lengths[narrow],
        rewards[narrow],
        keep=keep[narrow],
        online=online[narrow],
        fresh=fresh[narrow],
        group=6,
    )
    same([loss, *(one if one is None else one[narrow] for one in wide)], alone)


SOME_RIGHT = torch.tensor([1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1], dtype=torch.float64)


@pytest.mark.parametrize("case", CASES)
def test_only_algorithms_that_need_the_best_reward_read_it(case):
    (name, options), (tensors, lengths, _) = CASES[case], raw(seed=5)
    one, other = (algorithms.make(name, high, **options) for high in (1.0, 0.0))
    expected = gradient(one, tensors, lengths, SOME_RIGHT)
    if not one.needs.best_reward:
        same(expected, gradient(other, tensors, lengths, SOME_RIGHT))
        return
    if case == "passk":  # of k = 4 in groups of 4, one success is as good as all
        return
    with pytest.raises((AssertionError, ValueError)):  # else the need would be declared in vain
        same(expected, gradient(other, tensors, lengths, SOME_RIGHT))


# QRPO reads the reward as q0 alone, which these batches set
@pytest.mark.parametrize("case", sorted(set(CASES) - {"qrpo"}))
def test_a_response_that_is_paid_less_than_the_best_is_no_failure_or_is_refused(case):
    """A penalty for length leaves .5 of a success; needs says that this is a failure."""
    (name, options), (tensors, lengths, _) = CASES[case], raw(seed=5)
    one, penalised, failed = algorithms.make(name, **options), *SOME_RIGHT.repeat(2, 1)
    penalised[0], failed[0] = 0.5, 0.0
    taken, as_failed = (gradient(one, tensors, lengths, r) for r in (penalised, failed))
    assert one.needs.best_reward == "success" or not torch.equal(taken[1], as_failed[1])
