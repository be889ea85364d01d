"""Gradients of hand-made batches, and what is read from them."""

import copy
import math
from dataclasses import replace

import pytest
import torch

import algorithms
from experiments.anatomy.batches import policy_steps
from experiments.anatomy.gradients import (
    Bench,
    cosines,
    gram,
    group_pushes,
    weight_shares,
)
from experiments.anatomy.options import Options
from experiments.policy.policy import Policy
from experiments.run_dir.ledger import Ledger
from tests.experiments.learner.learning import GROUP, REWARDS, samples_from


@pytest.fixture
def bench(tiny):
    policy = Policy(tiny)
    return Bench(policy, policy, policy, pad=0, ledger=Ledger())


def cosine(one, other):
    return float(cosines(gram([one.gradient, other.gradient]))[0, 1])


def test_cosines_of_vectors_at_known_angles():
    vectors = [torch.tensor(v) for v in ([1.0, 0.0], [3.0, 3.0], [0.0, -2.0], [0.0, 0.0])]
    half = math.sqrt(0.5)
    expected = torch.tensor([[1, half, 0], [half, 1, -half], [0, -half, 1]], dtype=torch.float64)
    found = cosines(gram(vectors, chunk=1))
    torch.testing.assert_close(found[:3, :3], expected)
    assert found[3].isnan().all()


def test_products_are_added_up_in_float64():
    long = torch.full((1 << 18,), 1.0)
    long[0] = 1e4
    assert gram([long], chunk=1000)[0, 0] == 1e8 + (1 << 18) - 1


def test_shares_of_the_weight_add_up(tiny):
    samples = samples_from(tiny, REWARDS)
    samples[0] = replace(samples[0], logps=None)  # an offline program
    weights = torch.arange(1.0, 13.0)
    shares = weight_shares(weights, samples)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["others"] == pytest.approx(1 / 78)
    assert shares["accepted"] == pytest.approx((4 + 10 + 11 + 12) / 78)
    assert all(math.isnan(share) for share in weight_shares(weights * 0, samples).values())


def test_the_gradient_is_of_the_whole_batch_and_leaves_the_policy_as_it_was(tiny, bench):
    before = copy.deepcopy(tiny.state_dict())
    samples = samples_from(tiny, REWARDS)
    found = bench.effect(algorithms.make("raft"), samples, GROUP)
    logps = torch.stack([_logp(tiny, sample) for sample in samples if sample.accepted])
    tokens = sum(len(sample.tokens) for sample in samples if sample.accepted)
    tiny.zero_grad()
    (-logps.sum() / tokens).backward()
    expected = torch.cat([p.grad.flatten() for p in tiny.parameters()])
    assert torch.nn.functional.cosine_similarity(found.gradient, expected, 0) > 0.9999
    assert all(torch.equal(value, before[key]) for key, value in tiny.state_dict().items())


def _logp(model, sample):
    ids = torch.tensor([[*sample.prompt.tokens, *sample.tokens]])
    logits = model(ids).logits[0, len(sample.prompt.tokens) - 1 : -1]
    chosen = torch.tensor(sample.tokens)
    return logits.log_softmax(-1).gather(-1, chosen[:, None]).sum()


def test_known_identities_at_the_base(tiny, bench):
    samples, known = samples_from(tiny, REWARDS), {}
    found = {
        name: bench.effect(algorithms.make(algo, **options), samples, GROUP, known=known)
        for name, (algo, options) in {
            "raft": ("raft", {}),
            "cross": ("spo", {"beta": 0.03}),
            "squared": ("spo", {"loss": "squared"}),
            "rloo": ("rloo", {"kl_coef": 0.0}),
            "gvpo": ("gvpo", {}),
        }.items()
    }
    assert cosine(found["squared"], found["rloo"]) == pytest.approx(1, abs=1e-6)
    assert cosine(found["squared"], found["gvpo"]) == pytest.approx(1, abs=1e-6)
    assert cosine(found["cross"], found["rloo"]) < 0.99
    failures = torch.tensor([not sample.accepted for sample in samples])
    assert float(found["raft"].weights[failures].sum()) == 0
    assert float(found["squared"].weights[failures].sum()) > 0


def test_log_probs_that_are_known_change_no_gradient(tiny, bench):
    samples, known = samples_from(tiny, REWARDS), {}
    algorithm = algorithms.make("spo", loss="squared")
    first, again = (bench.effect(algorithm, samples, GROUP, known=known) for _ in range(2))
    alone = bench.effect(algorithm, samples, GROUP)
    assert known.keys() >= {"reference"}
    for other in (again, alone):
        assert torch.equal(first.gradient, other.gradient)


def test_pushes_on_groups_that_are_right_wrong_and_half_right(tiny, bench):
    rewards = [1.0] * 4 + [0.0] * 4 + [1.0, 1.0, 0.0, 0.0]
    made = samples_from(tiny, rewards)
    grpo = group_pushes(bench.effect(algorithms.make("grpo"), made, GROUP), made)
    raft = group_pushes(bench.effect(algorithms.make("raft"), made, GROUP), made)
    assert grpo["all right, accepted"] == pytest.approx(0, abs=1e-3)
    assert grpo["half right, accepted"] > 0 > grpo["half right, rejected"]
    assert raft["all right, accepted"] > 0 == raft["all wrong, rejected"]


def test_with_the_policy_itself_as_reference_spos_soft_value_is_that_of_the_start(tiny, bench):
    """S = 0 right after the reference has moved, however far the policy is from the base."""
    samples, moved = samples_from(tiny, REWARDS), copy.deepcopy(tiny)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.mul_(1.05)
    algorithm, policy = algorithms.make("spo", loss="squared", beta=1.0), Policy(moved)
    far = replace(bench, rollout=policy, policy=policy)
    at_base, at_itself = (
        each.effect(algorithm, samples, GROUP) for each in (far, replace(far, reference=policy))
    )
    # The squared loss pulls a response up by its reward less the group's mean, and by S besides.
    expected = torch.tensor(
        [r - sum(REWARDS[i // GROUP * GROUP :][:GROUP]) / GROUP for i, r in enumerate(REWARDS)]
    )
    lengths = torch.tensor([float(len(sample.tokens)) for sample in samples])
    scale = float(at_itself.pushes.abs().max() / (expected * lengths).abs().max())
    torch.testing.assert_close(at_itself.pushes, scale * expected * lengths, atol=1e-5, rtol=1e-3)
    assert (at_base.pushes - at_itself.pushes).abs().max() > 0.1 * at_itself.pushes.abs().max()


def test_the_run_keeps_the_policies_and_their_references():
    assert policy_steps(Options(half=10, collapsed=70, lag=10)) == [10, 20, 60, 70, 80]
    assert policy_steps(Options(half=1, collapsed=20, lag=4)) == [1, 4, 5, 10, 14, 20, 24]
