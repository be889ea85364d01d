"""Stale responses: the ratio's corrections, what is measured, and whose log-probs are taken."""

import math
from dataclasses import replace

import pytest
import torch

from algorithms.ppo import PPO
from tests.compose import options_of
from tests.experiments.learner.learning import ALGORITHMS, GROUP, REWARDS, learner_of, samples_from


def shifted(samples, nats):
    """The samples as an engine would tell them that is off by so much on every token."""
    return [replace(s, logps=tuple(logp + nats for logp in s.logps)) for s in samples]


CORRECTED = ("truncated", "truncated_current", "masked", "sequence_mask", "decoupled")


@pytest.mark.parametrize("kind", CORRECTED)
def test_a_correction_of_nothing_changes_nothing(tiny, kind):
    samples = samples_from(tiny, REWARDS)
    gradients = []
    for correction in ("none", kind):
        learner = learner_of(tiny, ALGORITHMS["grpo"], correction=correction)
        metrics = learner.update(samples, GROUP, None)
        gradients.append([p.grad for p in learner.model.parameters()])
        assert metrics.get("correction/weight_mean", 1.0) == pytest.approx(1.0, abs=1e-5)
        assert metrics["ess"] == pytest.approx(1.0, abs=1e-6)
        assert metrics["kl_writer"] == pytest.approx(0.0, abs=1e-6)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


UP = math.exp(0.5)


@pytest.mark.parametrize(
    ("options", "weight", "cut"),
    [
        ({"correction": "truncated"}, UP, 0.0),
        ({"correction": "truncated", "correction_high": 1.2}, 1.2, 1.0),
        ({"correction": "truncated_current"}, 1.0, 1.0),
        ({"correction": "decoupled"}, UP, 0.0),
        ({"correction": "masked"}, UP, 0.0),
        ({"correction": "masked", "correction_high": 1.2}, 0.0, 1.0),
        ({"correction": "sequence_mask", "correction_high": 1.7}, UP, 0.0),
        ({"correction": "sequence_mask"}, 0.0, 1.0),
    ],
)
def test_a_corrected_ratio_is_one_at_the_start_and_weighs_the_difference(
    tiny, options, weight, cut
):
    shifted_samples = shifted(samples_from(tiny, REWARDS), -0.5)  # π/μ = e^0.5 on every token
    metrics = learner_of(tiny, ALGORITHMS["grpo"], **options).update(shifted_samples, GROUP, None)
    assert metrics["clip_share"] == 0
    assert metrics["correction/weight_mean"] == pytest.approx(weight, abs=1e-4)
    assert metrics["correction/cut_share"] == cut


def test_the_difference_to_the_rollout_policy_is_measured(tiny):
    samples = samples_from(tiny, REWARDS)
    shifted_samples = [*shifted(samples[:4], -0.5), *samples[4:]]
    metrics = learner_of(tiny, ALGORITHMS["grpo"]).update(shifted_samples, GROUP, None)
    assert metrics["clip_share"] > 0
    n, far = sum(len(s.tokens) for s in samples), sum(len(s.tokens) for s in samples[:4])
    ess = (far * UP + n - far) ** 2 / (n * (far * UP**2 + n - far))
    assert metrics["ess"] == pytest.approx(ess, abs=1e-4)
    assert metrics["kl_writer"] == pytest.approx(far * (UP * 0.5 - UP + 1) / 12, abs=1e-4)


@pytest.mark.parametrize("missing_logprobs", ["reference", "recomputed"])
def test_missing_log_probs_are_those_of_the_chosen_policy(tiny, missing_logprobs):
    samples = samples_from(tiny, REWARDS)
    options = {"missing_logprobs": missing_logprobs, "correction": "decoupled"}
    learner = learner_of(tiny, ALGORITHMS["grpo"], **options)
    learner.update(samples, GROUP, None)
    samples[1] = replace(samples[1], logps=None)
    tokens, batch, _ = learner._assemble(samples, GROUP)
    model = {"reference": learner.ref_logp, "recomputed": learner.logp}[missing_logprobs](tokens)
    assert torch.equal(batch.rollout_logp[1], model[1])
    assert (batch.correction[1][batch.mask[1]] == 1).all() == (missing_logprobs == "recomputed")
    known = torch.tensor(samples[0].logps)
    assert torch.equal(batch.rollout_logp[0, : len(known)], known)


def first_and_later_weights(tiny, monkeypatch, correction):
    """(the weights that the loss gets, min(π/μ, 1) of the same tokens), for each of two steps."""
    samples = shifted(samples_from(tiny, REWARDS), 0.2)  # π/μ = e^−0.2 at the start
    learner = learner_of(
        tiny, PPO(options_of("ppo", learning_rate=1e-2), 1.0), epochs=2, **correction
    )
    seen, loss = [], learner.algorithm.loss

    def watched(output, batch):
        ratio = (output.logp.detach() - batch.rollout_logp).masked_fill(~batch.mask, 0.0).exp()
        seen.append((batch.correction, ratio.clamp(max=1.0)))
        assert not batch.correction.requires_grad
        return loss(output, batch)

    monkeypatch.setattr(learner.algorithm, "loss", watched)
    learner.update(samples, GROUP, None)
    assert len(seen) == 2
    return seen


def test_rlefs_weight_is_of_the_policy_at_each_step_and_truncated_of_that_at_the_start(
    tiny, monkeypatch
):
    """RLEF (2410.02089): sg[min(π/μ, 1)]. With one step a batch the two are the same."""
    start = first_and_later_weights(
        tiny, monkeypatch, {"correction": "truncated", "correction_high": 1.0}
    )
    torch.testing.assert_close(*start[0])
    assert torch.equal(start[0][0], start[1][0])
    assert (start[1][0] - start[1][1]).abs().max() > 0.01
    for weights, expected in first_and_later_weights(
        tiny, monkeypatch, {"correction": "truncated_current"}
    ):
        torch.testing.assert_close(weights, expected)
