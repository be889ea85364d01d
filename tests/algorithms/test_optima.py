"""Objectives that claim the optimum of E[R] − β KL(π ‖ π_ref) from responses of any policy."""

import math
from typing import get_args

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.spo import LossKind
from tests.algorithms.tabular import (
    BETA,
    MASK,
    RESPONSES,
    ROWS,
    VOCABULARY,
    fit,
    table_logp,
    total_variation,
)

OPTIMAL = {
    "gvpo": {"beta": BETA},
    "tba": {"beta": BETA},
    "copg": {"beta": BETA},
    "dro": {"beta": BETA},
    "astar_po": {"beta": BETA, "value_beta": BETA},
    "spo with the group's value": {"beta": BETA, "loss": "squared", "q0": "group"},
    **{
        f"spo, loss={kind}": {"beta": BETA, "loss": kind, "q0": "monte_carlo"}
        for kind in get_args(LossKind)
    },
}


def loss_of(algorithm, world, logp, drawn, behaviour=None):
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
        rollout_logp=world["ref_logp"][drawn] if behaviour is None else behaviour[drawn],
        ref_logp=world["ref_logp"][drawn],
        policy_logp=logp.detach()[drawn],
        q0=value,
    )
    values = value.unsqueeze(-1).expand(MASK[drawn].shape)
    output = PolicyOutput(logp=logp[drawn], entropy=logp[drawn], values=values)
    return algorithm.loss(output, algorithm.prepare(batch))[0]


def optimal_table(world):
    """Logits of the optimum, prefix by prefix."""
    flat = torch.zeros(world["reference"].numel(), dtype=torch.float64)
    for t in range(ROWS.shape[1]):
        at = ROWS[:, t] * world["reference"].shape[1] + RESPONSES[:, t]
        flat.scatter_add_(0, at, world["optimum"])
    return flat.view_as(world["reference"]).log()


def make(name, **options):
    return algorithms.make(name.split()[0].rstrip(","), reward_high=0.0, **options)


def pull_at_optimum(algorithm, world, drawn):
    """Norm of the gradient at the optimum on one prompt's responses `drawn`."""
    table = optimal_table(world).requires_grad_(True)
    loss_of(algorithm, world, table_logp(table), drawn).backward()
    return table.grad.norm().item()


def behaviour_policies(world):
    """Probabilities of all responses under the optimum, a uniform policy and the reference."""
    uniform = torch.ones(len(RESPONSES)) / len(RESPONSES)
    return {
        "optimum": world["optimum"],
        "uniform": uniform,
        "reference": world["ref_logp"].sum(-1).exp(),
    }


@pytest.mark.parametrize("name", OPTIMAL)
def test_at_the_optimum_no_policys_responses_have_a_gradient(name, world):
    for behaviour in behaviour_policies(world).values():
        generator = torch.Generator().manual_seed(1)
        drawn = torch.multinomial(behaviour, 40, replacement=True, generator=generator)
        assert pull_at_optimum(make(name, **OPTIMAL[name]), world, drawn) < 1e-9


def test_kimis_fixed_point_is_another_on_off_policy_responses(world):
    every = torch.arange(len(RESPONSES))
    assert pull_at_optimum(make("kimi", tau=BETA), world, every) > 1e-2


SPO = [name for name in OPTIMAL if "loss=" in name]


@pytest.mark.parametrize("name", ["gvpo", "dro", "astar_po", *SPO])
def test_frozen_off_policy_responses_lead_to_it(name, world):
    # the straight part of SPO's loss has no curvature for L-BFGS
    wide = {"slope_bound": 100.0} if name in SPO else {}
    algorithm, every = make(name, **OPTIMAL[name], **wide), torch.arange(len(RESPONSES))
    table = fit(world, lambda logp: loss_of(algorithm, world, logp, every), 600 if wide else 60)
    assert total_variation(world["reference"], world["optimum"]) > 0.05
    bound = 5e-3 if "cross_entropy" in name else 1e-3
    assert total_variation(table, world["optimum"]) < bound


@pytest.mark.parametrize("kind", get_args(LossKind))
def test_the_groups_soft_value_leads_to_it_from_a_uniform_writers_responses(kind, world):
    """Every response once, as a uniform writer would have it: V̂ is exact."""
    options = {"beta": BETA, "loss": kind, "q0": "group_soft", "slope_bound": 100.0}
    algorithm, every = make("spo", **options), torch.arange(len(RESPONSES))
    uniform = torch.full(MASK.shape, -math.log(VOCABULARY), dtype=torch.float64)
    table = fit(world, lambda logp: loss_of(algorithm, world, logp, every, uniform))
    bound = 5e-3 if kind == "cross_entropy" else 1e-3
    assert total_variation(table, world["optimum"]) < bound
