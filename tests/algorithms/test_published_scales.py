"""What published defaults do at the length and the rewards of MiniContests.

docs/guide/algorithms.md has these figures in a table.
"""

import math

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.regressions import DRO
from algorithms.value_variants import length_adaptive_lam
from tests.compose import options_of

TOKENS = 26  # mean length of a response to MiniContests
TOKEN_STD = 0.07  # of a token's log π/μ, measured there at a lag of 8 with algo=gspo
PUBLISHED_TOKENS = 10_000  # our assumption for GSPO; its paper gives no length


def sequence_batch(length, token_std, rows=4000, seed=0):
    """Responses of one length whose log-ratios are independent for each token; half are right."""
    generator = torch.Generator().manual_seed(seed)
    logp = token_std * torch.randn(rows, length, generator=generator, dtype=torch.float64)
    ones = torch.ones(rows, dtype=torch.bool)
    batch = Batch(
        mask=ones.unsqueeze(-1).expand(rows, length),
        rewards=(torch.arange(rows) % 2).double(),
        keep=ones,
        online=ones,
        group_size=4,
        behaviour_logp=torch.zeros_like(logp),
    )
    return batch, logp


def without_gradient(algorithm, batch, logp):
    """Share of responses without a gradient."""
    logp = logp.clone().requires_grad_(True)
    output = PolicyOutput(logp=logp, entropy=logp)
    algorithm.loss(output, algorithm.prepare(batch))[0].backward()
    return float((logp.grad == 0).all(-1).double().mean())


def normal_outside(low, high, std):
    """P(x < −low or x > high) for x ~ N(0, std)."""
    return 0.5 * (math.erfc(low / std / 2**0.5) + math.erfc(high / std / 2**0.5))


def test_gspos_bounds_suit_thousands_of_tokens_and_scale_with_the_root_of_the_length():
    """log s is a mean over tokens: its std is that of a token over √T."""
    published = algorithms.make("gspo")
    low, high = published.config.clip_low, published.config.clip_high
    assert (low, high) == (3e-4, 4e-4)
    long, short = (
        normal_outside(low, high, TOKEN_STD / length**0.5) for length in (PUBLISHED_TOKENS, TOKENS)
    )
    assert short > 0.96
    root = (PUBLISHED_TOKENS / TOKENS) ** 0.5
    assert (root * low, root * high) == pytest.approx((0.006, 0.008), rel=0.03)  # as in the atlas
    scaled = normal_outside(root * low, root * high, TOKEN_STD / TOKENS**0.5)
    assert scaled == pytest.approx(long) == pytest.approx(0.62, abs=0.01)
    batch, logp = sequence_batch(TOKENS, TOKEN_STD)
    # one side of the bounds cuts each sign of the advantage
    assert without_gradient(published, batch, logp) == pytest.approx(short / 2, abs=0.02)
    wide = algorithms.make("gspo", clip_low=root * low, clip_high=root * high)
    assert without_gradient(wide, batch, logp) == pytest.approx(scaled / 2, abs=0.02)


def test_vapos_lambda_is_made_for_hundreds_of_tokens_and_more():
    lam = length_adaptive_lam(torch.tensor([5000.0, 400.0, TOKENS, 20.0, 8.0]), 0.05).tolist()
    assert lam == pytest.approx([0.996, 0.95, 0.231, 0.0, 0.0], abs=5e-4)
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64)
    ones = torch.ones(2, dtype=torch.bool)
    batch = Batch(
        mask=ones.unsqueeze(-1).expand(2, TOKENS),
        rewards=rewards,
        keep=ones,
        online=ones,
        group_size=2,
        values=torch.zeros(2, TOKENS, dtype=torch.float64),
    )
    prepared = algorithms.make("vapo").prepare(batch)
    gap = (prepared.advantages[0] - prepared.advantages[1]).tolist()
    # With V = 0, as at the start, what a token learns of the reward is λ^(tokens that follow).
    assert gap[-4] / gap[-1] == pytest.approx(0.231**3, abs=1e-3)


@pytest.mark.parametrize("beta", [1.0, 0.1])
def test_dros_beta_is_in_units_of_reward_and_sets_how_far_its_optimum_is(beta):
    """π* = π_ref e^{r/β}/Z: from 6 % success to 15 % at the paper's β = 1, to 99.9 % at 0.1.

    There DRO has no gradient, with the value β log Z.
    """
    p, ones = 0.06, torch.ones(2, dtype=torch.bool)
    z = p * math.exp(1 / beta) + 1 - p
    optimum = p * math.exp(1 / beta) / z
    ref, logp = torch.tensor([[p, optimum], [1 - p, 1 - optimum]], dtype=torch.float64).log().T
    leaf = logp.clone().unsqueeze(-1).requires_grad_(True)
    batch = Batch(ones.unsqueeze(-1), 1.0 - torch.arange(2), ones, ones, 2, ref_logp=ref[:, None])
    output = PolicyOutput(leaf, leaf, torch.full((2, 1), beta * math.log(z)).double())
    DRO(options_of("dro", beta=beta), reward_high=1.0).loss(output, batch)[0].backward()
    assert leaf.grad.abs().max() < 1e-6
    assert optimum == pytest.approx({1.0: 0.148, 0.1: 0.9993}[beta], abs=1e-4 if beta < 1 else 1e-3)
