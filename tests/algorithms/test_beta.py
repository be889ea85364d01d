"""The weight of the KL to the reference against the reward, from where each algorithm rests.

The optimum of E[r] − β KL(π ‖ π_ref) is π_ref e^{r/β}/Z. There, and for no other β, the expected
update of an algorithm that regularises with this β is zero.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from algorithms.base import Batch, PolicyOutput
from algorithms.grpo import GRPO
from algorithms.ppo import PPO
from tests.algorithms.tabular import LENGTH, PREFIXES, RESPONSES, ROWS, VOCABULARY, table_logp
from tests.compose import options_of
from tests.experiments.compose import config

BETA, GROUP, COUNT = 0.5, 8, 80_000


@dataclass
class World:
    """Responses of the optimum for BETA, with binary rewards."""

    logits: Tensor  # the optimum
    ref_logp: Tensor  # (responses, time)
    rewards: Tensor  # (responses,)
    drawn: Tensor  # (COUNT,) indices of responses

    def logp(self, logits):
        if logits.dim() == 1:
            return logits.log_softmax(-1).unsqueeze(-1)
        return table_logp(logits)


def draw(logits, ref_logp, rewards, generator):
    optimum = (ref_logp.sum(-1) + rewards / BETA).softmax(-1)
    drawn = torch.multinomial(optimum, COUNT, replacement=True, generator=generator)
    world = World(logits(optimum), ref_logp, rewards, drawn)
    torch.testing.assert_close(world.logp(world.logits).sum(-1).exp(), optimum)
    return world


@pytest.fixture(scope="module")
def long():
    """Responses of three tokens."""
    generator = torch.Generator().manual_seed(5)
    reference = torch.randn(PREFIXES, VOCABULARY, generator=generator, dtype=torch.float64)
    rewards = (torch.rand(len(RESPONSES), generator=generator) < 0.4).double()

    def tabulated(probabilities):
        table = torch.zeros(PREFIXES * VOCABULARY, dtype=torch.float64)
        for t in range(LENGTH):
            table.scatter_add_(0, ROWS[:, t] * VOCABULARY + RESPONSES[:, t], probabilities)
        return table.view(PREFIXES, VOCABULARY).log()

    return draw(tabulated, table_logp(reference), rewards, generator)


@pytest.fixture(scope="module")
def short():
    """Responses of one token."""
    generator = torch.Generator().manual_seed(6)
    ref_logp = torch.randn(9, generator=generator, dtype=torch.float64).log_softmax(-1)
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    return draw(torch.log, ref_logp.unsqueeze(-1), rewards, generator)


def drift(algorithm, world):
    """Norm of the expected update of the logits at the optimum for BETA."""
    logits = world.logits.clone().requires_grad_(True)
    logp = world.logp(logits)[world.drawn]
    ones = torch.ones(COUNT, dtype=torch.bool)
    batch = Batch(
        mask=torch.ones_like(logp, dtype=torch.bool),
        rewards=world.rewards[world.drawn],
        keep=ones,
        online=ones,
        group_size=GROUP,
        behaviour_logp=logp.detach(),
        ref_logp=world.ref_logp[world.drawn],
        values=torch.zeros_like(logp),
    )
    output = PolicyOutput(logp=logp, entropy=logp, values=torch.zeros_like(logp))
    algorithm.loss(output, algorithm.prepare(batch))[0].backward()
    return logits.grad.norm().item()


def ppo(beta):
    return PPO(options_of("ppo", kl_coef=beta), 1.0)


def grpo(beta, **options):
    """A response is in its own baseline, which scales the reward by (G − 1)/G, and not the KL."""
    kl_coef = beta * (GROUP - 1) / GROUP
    return GRPO(
        options_of("grpo", kl_coef=kl_coef, **{"kl": "k3+", "scale_by_std": False} | options), 1.0
    )


def test_ppos_coefficient_is_beta(long):
    at_rest = drift(ppo(BETA), long)
    assert at_rest < drift(ppo(BETA / 2), long) / 5
    assert at_rest < drift(ppo(BETA * 2), long) / 5


def test_grpos_coefficient_without_the_std_is_beta_for_one_token(short):
    at_rest = drift(grpo(BETA), short)
    assert at_rest < drift(grpo(BETA / 2), short) / 5
    assert at_rest < drift(grpo(BETA * 2), short) / 5


def test_over_several_tokens_grpo_rests_elsewhere_whatever_its_coefficient(long):
    """A KL in the loss leaves out a token's effect on the KL of the tokens after it."""
    nearest = min(drift(grpo(BETA * factor), long) for factor in (0.25, 0.5, 0.75, 1, 1.5, 2, 4))
    assert nearest > 5 * drift(ppo(BETA), long)


def test_dividing_by_the_std_makes_grpos_coefficient_weigh_less(short):
    """1/std multiplies the reward and not the KL: kl_coef has the weight of kl_coef × std."""
    std = short.rewards[short.drawn].view(-1, GROUP).std(-1)
    std = 1 / (1 / std[std > 0]).mean().item()  # a group without a spread has no advantage
    assert std < 0.5
    plain = drift(grpo(BETA, scale_by_std=True), short)
    assert drift(grpo(BETA / std, scale_by_std=True), short) < plain / 3


def test_grpos_default_has_the_weight_that_the_docs_state():
    """docs/guide/algorithms.md; SPO's and PPO's are their coefficients."""
    right = torch.arange(1, GROUP).unsqueeze(-1)  # accepted of eight: neither none nor all
    std = (torch.arange(GROUP) < right).double().std(-1)
    weights = options_of("grpo").kl_coef * std * GROUP / (GROUP - 1)
    assert [f"{weights.min():.3f}", f"{weights.max():.3f}"] == ["0.008", "0.012"]
    assert options_of("spo").beta / options_of("ppo").kl_coef == 5
    assert [round(float(options_of("spo").beta / w)) for w in (weights.max(), weights.min())] == [
        8,
        12,
    ]


def test_the_files_of_equal_beta_weigh_it_equally():
    files = {name: config(f"experiment=equal_beta_{name}") for name in ("spo", "ppo", "grpo")}
    size = files["grpo"].train.group_size
    assert files["spo"].algo.beta == files["ppo"].algo.kl_coef == 0.1
    assert files["grpo"].algo.kl_coef == pytest.approx(0.1 * (size - 1) / size)
    assert not files["grpo"].algo.scale_by_std
    assert files["grpo"].algo.kl == "k3+"
