"""Corrections of the ratio: their weights, identities, and their use in every objective."""

import pytest
import torch

import algorithms
from algorithms.base import Batch, PolicyOutput
from algorithms.tensors import CORRECTION_BOUNDS, correction_weights

F64 = torch.float64
MASK = torch.tensor([[True, True, True], [True, True, False]])
PROXIMAL = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.1, 0.7]], dtype=F64).log()
ROLLOUT = torch.tensor([[0.3, 0.3, 0.4], [0.1, 0.5, 0.7]], dtype=F64).log()
W = [[5 / 3, 1.0, 0.5], [4.0, 0.2, 1.0]]
RLEF = [[1.0, 1.0, 0.5], [1.0, 0.2, 1.0]]  # min(w, 1)
MEANS = [(5 / 6) ** (1 / 3), 0.8**0.5]  # geometric, of each row


@pytest.mark.parametrize(
    ("kind", "bounds", "expected"),
    [
        ("decoupled", (), W),
        ("truncated", (0.0, 1.5), [[1.5, 1.0, 0.5], [1.5, 0.2, 1.0]]),
        ("truncated", (0.3, 3.0), [[5 / 3, 1.0, 0.5], [3.0, 0.3, 1.0]]),
        ("truncated_current", CORRECTION_BOUNDS["truncated_current"], RLEF),
        ("masked", (0.4, 2.0), [[5 / 3, 1.0, 0.5], [0.0, 0.0, 1.0]]),
        ("sequence_mask", (0.9, 1.1), [W[0], [0.0, 0.0, 1.0]]),
        ("sequence_mask", (0.8, 0.9), [[0.0, 0.0, 0.0], W[1]]),
    ],
)
def test_weights(kind, bounds, expected):
    assert pytest.approx([0.941, 0.894], abs=1e-3) == MEANS
    weights, cut = correction_weights(PROXIMAL, ROLLOUT, MASK, kind, *bounds)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=F64))
    free = torch.tensor(W, dtype=F64)
    assert torch.equal(cut, ~torch.isclose(weights, free))


@pytest.mark.parametrize("kind", ["decoupled", *CORRECTION_BOUNDS])
def test_masked_out_positions_are_not_read(kind):
    garbage = PROXIMAL.masked_fill(~MASK, float("nan"))
    weights, cut = correction_weights(garbage, ROLLOUT, MASK, kind, 0.5, 2.0)
    assert weights[~MASK].tolist() == [1.0]
    assert not cut[~MASK].any()


CORRECTABLE = [
    name
    for name in algorithms.names()
    if (needs := algorithms.make(name).needs).behaviour and needs.behaviour == "ratio"
]


@pytest.mark.parametrize("name", CORRECTABLE)
def test_no_objective_with_a_ratio_leaves_the_weights_out(name):
    torch.manual_seed(0)
    algorithm, shape = algorithms.make(name), (8, 5)
    mask, online = torch.ones(shape, dtype=torch.bool), torch.ones(8, dtype=torch.bool)
    old = -torch.rand(shape, dtype=F64)
    fields = {"mask": mask, "keep": online, "online": online, "fresh": online, "group_size": 8}
    fields["rewards"] = torch.tensor([1.0] + [0.0] * 7, dtype=F64)
    known = ("behaviour_logp", "rollout_logp", "ref_logp", "policy_logp", "values", "step_values")
    for field in (*known, "earlier_logp"):
        fields[field] = old
    gradients = []
    for factor in (1.0, 3.0):
        logp = (old + 0.01).requires_grad_(True)
        correction = torch.full(shape, factor, dtype=F64)
        batch = algorithm.prepare(Batch(**fields, correction=correction)).only_kept()
        rows = PolicyOutput(logp[: len(batch.mask)], old[: len(batch.mask)], old[: len(batch.mask)])
        algorithm.loss(rows, batch)[0].backward()
        gradients.append(logp.grad)
    assert not torch.allclose(*gradients)
