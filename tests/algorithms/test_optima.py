"""Objectives that claim the optimum of E[R] − β KL(π ‖ π_ref) from anyone's responses."""

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from tests.algorithms.test_spo import (
    BETA,
    MASK,
    RESPONSES,
    ROWS,
    fit,
    total_variation,
    world,  # noqa: F401
)

OPTIMAL = {
    "gvpo": {"beta": BETA},
    "tba": {"beta": BETA},
    "copg": {"beta": BETA},
    "dro": {"beta": BETA},
    "astar_po": {"beta": BETA, "value_beta": BETA},
}


def loss_of(algorithm, world, logp, drawn, behaviour=None):  # noqa: F811
    """One prompt's responses, `drawn` indices into all of them, as one group; V is exact."""
    ones = torch.ones(len(drawn), dtype=torch.bool)
    value = world["q0"].expand(len(drawn))
    batch = Batch(
        mask=MASK[drawn],
        rewards=world["rewards"][drawn],
        keep=ones,
        online=ones,
        group_size=len(drawn),
        behaviour_logp=world["ref_logp"][drawn],
        ref_logp=world["ref_logp"][drawn],
        policy_logp=logp.detach()[drawn],
        q0=value,
    )
    values = value.unsqueeze(-1).expand(MASK[drawn].shape)
    output = PolicyOutput(logp=logp[drawn], entropy=logp[drawn], values=values)
    return algorithm.loss(output, algorithm.prepare(batch))[0]


def optimal_table(world):  # noqa: F811
    """Logits of the optimum, prefix by prefix."""
    flat = torch.zeros(world["reference"].numel(), dtype=torch.float64)
    for t in range(ROWS.shape[1]):
        at = ROWS[:, t] * world["reference"].shape[1] + RESPONSES[:, t]
        flat.scatter_add_(0, at, world["optimum"])
    return flat.view_as(world["reference"]).log()


def pull_at_optimum(name, world, writer, **options):  # noqa: F811
    from tests.algorithms.test_spo import table_logp

    generator = torch.Generator().manual_seed(1)
    drawn = torch.multinomial(writer, 40, replacement=True, generator=generator)
    table = optimal_table(world).requires_grad_(True)
    loss_of(algorithms.make(name, **options), world, table_logp(table), drawn).backward()
    return table.grad.norm().item()


@pytest.mark.parametrize("name", OPTIMAL)
def test_at_the_optimum_nobodys_responses_have_a_pull(name, world):  # noqa: F811
    uniform = torch.ones(len(RESPONSES)) / len(RESPONSES)
    for writer in (world["optimum"], uniform, world["ref_logp"].sum(-1).exp()):
        assert pull_at_optimum(name, world, writer, **OPTIMAL[name]) < 1e-9


def test_kimis_fixed_point_is_another_on_foreign_responses(world):  # noqa: F811
    uniform = torch.ones(len(RESPONSES)) / len(RESPONSES)
    assert pull_at_optimum("kimi", world, uniform, tau=BETA) > 1e-2


@pytest.mark.parametrize("name", ["gvpo", "dro"])
def test_frozen_foreign_responses_lead_to_it(name, world):  # noqa: F811
    algorithm, every = algorithms.make(name, **OPTIMAL[name]), torch.arange(len(RESPONSES))
    table = fit(world, lambda logp: loss_of(algorithm, world, logp, every), steps=60)
    assert total_variation(world["reference"], world["optimum"]) > 0.05
    assert total_variation(table, world["optimum"]) < 1e-3
