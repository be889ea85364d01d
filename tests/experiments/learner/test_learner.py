"""One optimiser step: what is allocated, and that cutting the batch changes nothing."""

import copy
import math
from dataclasses import replace

import pytest
import torch

import algorithms
from algorithms.base import Needs
from algorithms.grpo import GRPO
from algorithms.policy_gradient import GroupReinforce
from algorithms.ppo import PPO
from experiments.errors import UserError
from experiments.learner.batching import micro_batches, pack
from experiments.learner.modules import GROWTH, learning_rate_factor
from experiments.policy import lora
from experiments.policy.policy import Policy
from tests.compose import model_config, options_of, train_config
from tests.experiments.learner.learning import (
    ALGORITHMS,
    GROUP,
    REWARDS,
    learner_of,
    learner_over,
    samples_from,
)


@pytest.mark.parametrize("name", ["spo", "ppo-separate", "ppo-shared", "grpo"])
def test_accumulated_gradients_equal_the_full_batchs(tiny, name):
    samples = samples_from(tiny, REWARDS)
    results = []
    cuts = ({}, {"micro_batch": 5}, {"micro_tokens": 30}, {"micro_tokens": 1})  # 1: row by row
    for cut in cuts:
        learner = learner_of(tiny, ALGORITHMS[name], **cut)
        metrics = learner.update(samples, GROUP, None)
        results.append((metrics, [parameter.grad for parameter in trained(learner)]))
    for metrics, gradients in results[1:]:
        assert metrics == pytest.approx(results[0][0], abs=1e-5)
        for one, other in zip(gradients, results[0][1], strict=True):
            assert (one - other).abs().max() < 1e-6


class Reinforce(GroupReinforce):
    """Rewards without a baseline: a response's term does not depend on the others."""

    needs = Needs()

    def advantages(self, batch):
        return batch.rewards


@pytest.mark.parametrize("cut", [{}, {"micro_batch": 1}, {"micro_tokens": 1}])
@pytest.mark.parametrize(("aggregate", "share"), [("sequence_mean", 11 / 12), ("token_mean", 1.0)])
def test_an_empty_response_only_counts_as_a_response(tiny, aggregate, share, cut):
    """Alone in its micro-batch or not: the gradient of the others, scaled by their share."""
    samples = samples_from(tiny, REWARDS)
    samples[5] = replace(samples[5], tokens=(), logps=())
    results = []
    for rows in (samples, samples[:5] + samples[6:]):
        algorithm = Reinforce(options_of("dr_grpo", aggregate=aggregate), 1.0)
        learner = learner_of(tiny, algorithm, max_grad_norm=1e9, **cut)
        metrics = learner.update(rows, 1, None)
        assert all(math.isfinite(value) for value in metrics.values())
        results.append([parameter.grad for parameter in trained(learner)])
    for found, others in zip(*results, strict=True):
        torch.testing.assert_close(found, others * share, rtol=1e-4, atol=1e-7)


def trained(learner):
    return [parameter for parameter in parameters(learner) if parameter.grad is not None]


def test_an_algorithm_gets_just_what_it_needs(tiny):
    kinds = [ALGORITHMS[name] for name in ("spo", "ppo-separate", "ppo-shared")]
    without = PPO(options_of("ppo", critic="none"), 1.0)
    kinds += [GRPO(options_of("grpo", kl_coef=0.0), 1.0), without]
    learners = spo, separate, shared, bare, control = [learner_of(tiny, each) for each in kinds]
    assert [one for one in learners if one.modules.critic is not None] == [separate]
    assert [one for one in learners if one.modules.value_head is not None] == [shared]
    assert spo.reference is not None and bare.reference is None
    assert len(spo.optimiser.param_groups) == len(control.optimiser.param_groups) == 1
    metrics = control.update(samples_from(tiny, REWARDS), GROUP, None)
    assert not {"critic_grad_norm", "ppo/value_loss", "ppo/value_mean"} & set(metrics)


def test_rewarded_responses_become_more_probable(tiny):
    samples = samples_from(tiny, REWARDS)
    for name in ("spo", "ppo-separate", "grpo"):
        learner = learner_of(tiny, ALGORITHMS[name])
        first = sum(sum(s.logps) for s in samples if s.reward)
        for _ in range(5):
            learner.update(samples, GROUP, None)
        tokens, *_ = learner._assemble(samples, GROUP)
        logp = learner.modules.logp(learner.policy, tokens).sum(-1)
        assert sum(logp[i].item() for i, s in enumerate(samples) if s.reward) > first


def test_truncated_responses_leave_the_loss_where_asked(tiny):
    samples = samples_from(tiny, REWARDS)
    assert any(s.truncated for s in samples)
    masked = learner_of(tiny, ALGORITHMS["grpo"], truncation="mask").update(samples, GROUP, None)
    ended = sum(not s.truncated for s in samples) / len(samples)
    assert masked["kept_share"] == pytest.approx(ended)
    whole = learner_of(tiny, ALGORITHMS["grpo"]).update(samples, GROUP, None)
    assert whole["kept_share"] == 1


def test_what_is_dropped_shrinks_no_metric_and_no_gradient(tiny):
    """Dropped rows used to stay in every denominator, so that keep and drop gave one gradient."""
    flat = samples_from(tiny, [1.0, 0.0, 0.0, 1.0] + [0.0] * 8)
    drop = GRPO(options_of("grpo", kl_coef=0.0, zero_variance="drop"), 1.0)
    dropped, alone, kept = (
        learner_of(tiny, algorithm, max_grad_norm=1e9)
        for algorithm in (drop, drop, GRPO(options_of("grpo", kl_coef=0.0), 1.0))
    )
    metrics = dropped.update(flat, GROUP, None)
    expected = alone.update(flat[:GROUP], GROUP, None)
    whole = kept.update(flat, GROUP, None)
    assert metrics["kept_share"] == pytest.approx(1 / 3)
    for name in ("entropy", "loss", "clip_share", "grad_norm"):
        assert metrics[name] == pytest.approx(expected[name], abs=1e-5), name
    assert metrics["grad_norm"] == pytest.approx(3 * whole["grad_norm"], rel=1e-3)


def test_a_prompt_is_read_in_one_micro_batch_unless_it_has_too_many_responses(tiny):
    samples = samples_from(tiny, REWARDS)
    for size, expected in ((4, [4, 4, 4]), (8, [8, 4]), (5, [4, 4, 4]), (3, [3, 3, 3, 1, 1, 1])):
        learner = learner_of(tiny, ALGORITHMS["grpo"], micro_batch=size)
        tokens, *_ = learner._assemble(samples, GROUP)
        parts = list(micro_batches(tokens, learner.config.micro_batch))
        assert sorted(map(len, parts), reverse=True) == expected or size == 3
        assert max(map(len, parts)) <= size
        assert torch.cat(parts).sort().values.tolist() == list(range(12))
        read = sum(len(set(tokens.prompt_of[part].tolist())) for part in parts)
        assert read == 3 if size >= GROUP else read <= 6


@pytest.mark.parametrize("lengths", [[3, 1, 6, 2] * 3, [6] * 4 + [1] * 4 + [2] * 4])
def test_a_budget_of_tokens_holds_prompts_and_padding_too(tiny, lengths):
    samples = [
        replace(sample, tokens=sample.tokens[:1] * length)
        for sample, length in zip(samples_from(tiny, REWARDS), lengths, strict=True)
    ]
    tokens = pack(samples, 0, torch.device("cpu"))
    for most in (1, 13, 20, 40, 200):
        parts = list(micro_batches(tokens, 12, most))
        assert torch.cat(parts).sort().values.tolist() == list(range(12))
        sizes = [tokens.rows(part) for part in parts]
        taken = [part.prompts.numel() + part.responses.numel() for part in sizes]
        assert all(len(part) == 1 or size <= most for part, size in zip(parts, taken, strict=True))
        if most >= 40:  # no group has more: each is read once
            assert sum(len(part.prompts) for part in sizes) == 3
    assert len(list(micro_batches(tokens, 12, 200))) == 1
    assert [len(part) for part in micro_batches(tokens, 12, 1)] == [1] * 12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["spo", "ppo-separate", "grpo", "prime"])
def test_the_state_after_two_steps_of_low_precision_holds_all_of_the_training(name, dtype, tiny):
    """As on a GPU: the weights have few bits, the optimiser's copies and moments are float32."""
    model = copy.deepcopy(tiny).to(dtype)
    samples = samples_from(model, REWARDS)
    whole, resumed = (learner_of(model, ALGORITHMS[name]) for _ in range(2))
    whole.update(samples, GROUP, None)
    whole.scale.value *= 2.0**28 if whole.scale.active else 1  # the next step overflows
    whole.update(samples, GROUP, None)
    state = copy.deepcopy(whole.state_dict())
    optimiser, weights = state["optimiser"], state["modules"]["model"].values()
    moments = [value for values in optimiser["state"].values() for value in values.values()]
    assert {weight.dtype for weight in weights} == {dtype}
    assert {held.dtype for held in [*optimiser["copies"], *moments]} == {torch.float32}
    assert any(not torch.equal(held, held.to(dtype).float()) for held in optimiser["copies"])
    resumed.load_state_dict(state)
    assert resumed.scale.value == whole.scale.value == (2.0**39 if dtype == torch.float16 else 1)
    assert resumed.update(samples, GROUP, None) == whole.update(samples, GROUP, None)
    assert all(map(torch.equal, parameters(resumed), parameters(whole)))


def test_float16_learns_what_float32_learns_and_skips_and_counts_what_overflows(tiny):
    """The clipping's past has no infinite norm; the scale doubles after steps without overflow."""
    model = copy.deepcopy(tiny).half()
    samples, ppo = samples_from(model, REWARDS), ALGORITHMS["ppo-separate"]
    learner, exact = (learner_of(m, ppo, clip_quantile=0.5) for m in (model, tiny.half().float()))
    learner.scale.value, skipped = 2.0**40, 0
    before = [weight.clone() for weight in parameters(learner)]
    while (metrics := learner.update(samples, GROUP, None))["step_skipped"]:
        skipped += 1
        assert "grad_norm" not in metrics and metrics["loss_scale"] == 2.0 ** (41 - skipped)
        assert all(map(torch.equal, parameters(learner), before))
    assert learner.policy.version == skipped + 1 and "grad_norm_bound" not in metrics
    for name, value in exact.update(samples, GROUP, None).items():
        assert metrics[name] == pytest.approx(value, rel=0.05, abs=2e-3)
    assert not all(map(torch.equal, parameters(learner), before))
    learner.scale.steps = GROWTH - 1
    assert not learner.scale.overflows([torch.ones(())])
    assert (learner.scale.value, learner.scale.steps) == (2.0 ** (41 - skipped), 0)


def parameters(learner):
    """The optimiser's parameters: float32 copies of weights, and a critic's own head."""
    return [p for group in learner.optimiser.param_groups for p in group["params"]]


def test_a_batch_with_nothing_to_learn_from_changes_nothing(tiny):
    learner = learner_of(tiny, ALGORITHMS["grpo-drop"])
    metrics = learner.update(samples_from(tiny, [1.0] * 12), GROUP, None)
    assert {name for name, value in metrics.items() if value == value} == {"kept_share"}
    assert metrics["kept_share"] == 0
    assert all(map(torch.equal, learner.model.parameters(), tiny.parameters()))


@pytest.mark.parametrize("adapter", [False, True])
def test_primes_token_rewards_add_up_to_its_reward_models_logit(adapter, tiny):
    """log π_φ(y) by transformers alone; π_φ begins as the reference and learns which pass."""
    policy = Policy(copy.deepcopy(tiny))
    if adapter:
        policy = lora.adapted(policy, model_config(adapter="lora", adapter_rank=4), seed=0)
    samples = samples_from(tiny, REWARDS)
    prime = algorithms.make("prime", beta=0.2, learning_rate=3e-4 if adapter else 3e-3)
    learner = learner_over(policy, prime, temperature=0.7)
    learnt = [learner.update(samples, GROUP, None)["prime/cross_entropy"] for _ in range(8)]
    assert learnt[0] == pytest.approx(math.log(2), abs=1e-6) and learnt[-1] < learnt[0] - 0.01
    _, batch, _ = learner._assemble(samples, GROUP)
    sums = []
    for sample in samples:
        prompt = list(sample.prompt.tokens)
        ids = torch.tensor([[*prompt, *sample.tokens]])
        with torch.no_grad():
            found = [
                model(ids).logits[0, len(prompt) - 1 : -1] / 0.7
                for model in (learner.modules.critic.model, tiny)
            ]
        chosen = [x.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None]).sum() for x in found]
        sums.append(0.2 * (chosen[0] - chosen[1]))
    probability, success = prime.values_and_outcomes(batch)
    torch.testing.assert_close(probability.logit(), torch.stack(sums), rtol=1e-3, atol=1e-4)
    assert success.tolist() == REWARDS


def test_divergence_is_said(tiny):
    samples = samples_from(tiny, REWARDS)
    samples[0] = replace(samples[0], reward=float("nan"))
    with pytest.raises(UserError, match="diverged"):
        learner_of(tiny, ALGORITHMS["grpo"]).update(samples, GROUP, None)


def test_learning_rate_schedules():
    def factors(**options):
        factor = learning_rate_factor(train_config(warmup_steps=2, **options), steps=10)
        return [round(factor(step), 3) for step in (0, 1, 2, 6, 10)]

    assert factors() == [0.5, 1.0, 1.0, 1.0, 1.0]
    assert factors(schedule="linear") == [0.5, 1.0, 1.0, 0.5, 0.0]
    assert factors(schedule="cosine") == [0.5, 1.0, 1.0, 0.5, 0.0]
