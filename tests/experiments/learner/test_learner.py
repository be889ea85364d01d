"""One optimiser step: what is allocated, and that cutting the batch changes nothing."""

import copy
import math
from dataclasses import replace

import pytest
import torch

import algorithms
from algorithms.grpo import GRPO, GRPOConfig
from algorithms.ppo import PPO, PPOConfig
from algorithms.spo import SPO, SPOConfig
from envs.problem import Judgement, Problem, Verdict
from experiments.config import TrainConfig
from experiments.engines.base import Sampling
from experiments.engines.hf import HFEngine
from experiments.errors import UserError
from experiments.learner.assemble import micro_batches, narrow, pack
from experiments.learner.learner import Learner
from experiments.learner.models import frozen_copy
from experiments.learner.optimiser import learning_rate_factor
from experiments.learner.weights import weights_version
from experiments.runs.ledger import Ledger
from experiments.samples.sample import Origin, PromptedProblem, Sample

ALGORITHMS = {
    "spo": SPO(SPOConfig(q0="group"), 1.0),
    "ppo-separate": PPO(PPOConfig(), 1.0),
    "ppo-shared": PPO(PPOConfig(critic="shared", entropy_coef=0.01), 1.0),
    "ppo-ewma": algorithms.make("ppo_ewma"),
    "grpo": GRPO(GRPOConfig(), 1.0),
    "grpo-drop": GRPO(GRPOConfig(zero_variance="drop", aggregate="token_mean"), 1.0),
}
GROUP = 4


def samples_from(model, rewards, max_tokens=6):
    """Groups of fresh responses with the given rewards."""
    prompts = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6]]
    engine = HFEngine(model, {1}, 0, 64)
    groups = engine.generate(prompts, [range(GROUP)] * 3, Sampling(max_tokens))
    samples = []
    for row, (prompt, group) in enumerate(zip(prompts, groups, strict=True)):
        prompted = PromptedProblem(Problem(f"p{row}", "", (), ()), tuple(prompt))
        for completion in group:
            reward = rewards[len(samples)]
            verdict = Verdict.ACCEPTED if reward else Verdict.WRONG_ANSWER
            judged = Judgement(verdict, 0, 1, 1, "")
            c = completion
            origin = Origin("policy", "run", 1, c.version)
            samples.append(Sample(prompted, c.tokens, c.logps, judged, reward, c.truncated, origin))
    return samples


REWARDS = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]


def learner_of(model, algorithm, **options):
    config = TrainConfig(warmup_steps=0, **options)
    return Learner(copy.deepcopy(model), 0, algorithm, config, 10, Ledger())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_accumulated_gradients_equal_the_full_batchs(tiny, name):
    samples = samples_from(tiny, REWARDS)
    results = []
    cuts = ({}, {"micro_batch": 5}, {"micro_batch": 1}, {"micro_tokens": 30}, {"micro_tokens": 1})
    for cut in cuts:
        learner = learner_of(tiny, ALGORITHMS[name], **cut)
        metrics = learner.update(samples, GROUP, None)
        gradients = [p.grad for group in learner.optimiser.param_groups for p in group["params"]]
        results.append((metrics, [g for g in gradients if g is not None]))
    for metrics, gradients in results[1:]:
        assert metrics == pytest.approx(results[0][0], abs=1e-5)
        for one, other in zip(gradients, results[0][1], strict=True):
            assert (one - other).abs().max() < 1e-6


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - {"ppo-ewma"}))
def test_by_default_a_batch_is_one_plain_step(tiny, name):
    """To the bit: several steps from a batch, corrections and staleness are off and do nothing."""
    samples = samples_from(tiny, REWARDS)
    learner, plain = (learner_of(tiny, copy.deepcopy(ALGORITHMS[name])) for _ in "ab")
    metrics = learner.update(samples, GROUP, None)
    plain.critic_alone = False  # values before the step, and again in it
    tokens, batch, _ = plain._assemble(samples, GROUP)
    if plain.algorithm.needs.policy:
        batch = replace(batch, policy_logp=plain.logp(tokens))
    batch = plain.algorithm.prepare(batch)
    kept = batch.keep.nonzero().squeeze(-1)
    (rows,) = micro_batches(tokens.rows(kept), 64)
    part = tokens.rows(kept[rows])
    micro = narrow(batch.only_kept().rows(rows), part.mask.shape[1])
    loss, _ = plain.algorithm.loss(plain._output(part, micro), micro)
    loss.backward()
    for group in plain.optimiser.param_groups:
        torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
    assert metrics["loss"] == float(loss.detach())
    for ours, theirs in zip(trained(learner), trained(plain), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def trained(learner):
    parameters = [p for group in learner.optimiser.param_groups for p in group["params"]]
    return [parameter for parameter in parameters if parameter.grad is not None]


def test_an_algorithm_gets_just_what_it_needs(tiny):
    spo = learner_of(tiny, ALGORITHMS["spo"])
    assert spo.critic is None
    assert spo.value_head is None
    assert spo.reference is not None
    assert len(spo.optimiser.param_groups) == 1
    bare = learner_of(tiny, GRPO(GRPOConfig(kl_coef=0.0), 1.0))
    assert bare.reference is None
    assert bare.critic is None
    separate = learner_of(tiny, ALGORITHMS["ppo-separate"])
    assert separate.critic is not None
    assert separate.value_head is None
    shared = learner_of(tiny, ALGORITHMS["ppo-shared"])
    assert shared.critic is None
    assert shared.value_head is not None


def test_the_reference_never_moves(tiny):
    learner = learner_of(tiny, ALGORITHMS["spo"])
    before = [p.clone() for p in learner.reference.parameters()]
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert all(
        torch.equal(a, b) for a, b in zip(before, learner.reference.parameters(), strict=True)
    )
    moved = zip(learner.model.parameters(), learner.reference.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in moved)


def test_on_fresh_samples_at_step_0_the_policy_is_the_reference(tiny):
    metrics = learner_of(tiny, ALGORITHMS["spo"]).update(samples_from(tiny, REWARDS), GROUP, None)
    assert metrics["kl_ref"] == pytest.approx(0, abs=1e-6)
    assert metrics["log_ratio_sum"] == pytest.approx(0, abs=1e-5)
    assert metrics["spo/q_terminal"] == pytest.approx(metrics["spo/q_initial"], abs=1e-5)
    metrics = learner_of(tiny, ALGORITHMS["grpo"]).update(samples_from(tiny, REWARDS), GROUP, None)
    assert metrics["clip_share"] == 0


def test_rewarded_responses_become_more_probable(tiny):
    samples = samples_from(tiny, REWARDS)
    for name in ("spo", "ppo-separate", "grpo"):
        learner = learner_of(tiny, ALGORITHMS[name])
        first = sum(sum(s.logps) for s in samples if s.reward)
        for _ in range(5):
            learner.update(samples, GROUP, None)
        tokens, *_ = learner._assemble(samples, GROUP)
        logp = learner._frozen(learner.model, tokens).sum(-1)
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
    drop = GRPO(GRPOConfig(kl_coef=0.0, zero_variance="drop"), 1.0)
    dropped, alone, kept = (
        learner_of(tiny, algorithm, max_grad_norm=1e9)
        for algorithm in (drop, drop, GRPO(GRPOConfig(kl_coef=0.0), 1.0))
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


def test_a_step_tells_engines_that_the_weights_are_others(tiny):
    learner = learner_of(tiny, ALGORITHMS["grpo"])
    before = weights_version(learner.model)
    copy_of = frozen_copy(learner.model)
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert weights_version(learner.model) == before + 1
    engine = HFEngine(copy_of, {1}, 0, 64)
    engine.sync(learner.model)
    assert weights_version(copy_of) == before + 1


def test_a_critics_head_is_float32_whatever_the_models_precision(tiny):
    for name in ("ppo-separate", "ppo-shared"):
        learner = learner_of(copy.deepcopy(tiny).bfloat16(), ALGORITHMS[name])
        head = learner.value_head or learner.critic.head
        assert head.weight.dtype == torch.float32
        samples = samples_from(learner.model, REWARDS)
        learner.update(samples, GROUP, None)
        tokens, *_ = learner._assemble(samples, GROUP)
        values = learner._values(tokens)[tokens.mask]
        assert not torch.equal(values, values.bfloat16().float())


def test_a_batch_with_nothing_to_learn_from_changes_nothing(tiny):
    learner = learner_of(tiny, ALGORITHMS["grpo-drop"])
    metrics = learner.update(samples_from(tiny, [1.0] * 12), GROUP, None)
    assert metrics == {"kept_share": 0.0}
    assert all(
        torch.equal(a, b)
        for a, b in zip(learner.model.parameters(), tiny.parameters(), strict=True)
    )


def test_divergence_is_said(tiny):
    samples = samples_from(tiny, REWARDS)
    samples[0] = replace(samples[0], reward=float("nan"))
    with pytest.raises(UserError, match="diverged"):
        learner_of(tiny, ALGORITHMS["grpo"]).update(samples, GROUP, None)


def test_learning_rate_schedules():
    def factors(**options):
        factor = learning_rate_factor(TrainConfig(warmup_steps=2, **options), steps=10)
        return [round(factor(step), 3) for step in (0, 1, 2, 6, 10)]

    assert factors() == [0.5, 1.0, 1.0, 1.0, 1.0]
    assert factors(schedule="linear") == [0.5, 1.0, 1.0, 0.5, 0.0]
    assert factors(schedule="cosine") == [0.5, 1.0, 1.0, 0.5, 0.0]


def shifted(samples, nats):
    """The samples as an engine would tell them that is off by so much on every token."""
    return [replace(s, logps=tuple(logp + nats for logp in s.logps)) for s in samples]


CORRECTED = ("truncated", "masked", "sequence_mask", "decoupled")


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


@pytest.mark.parametrize("name", ["grpo", "ppo-separate"])
@pytest.mark.parametrize(
    ("options", "weight", "cut"),
    [
        ({"correction": "truncated"}, UP, 0.0),
        ({"correction": "truncated", "correction_high": 1.2}, 1.2, 1.0),
        ({"correction": "decoupled"}, UP, 0.0),
        ({"correction": "masked"}, UP, 0.0),
        ({"correction": "masked", "correction_high": 1.2}, 0.0, 1.0),
        ({"correction": "sequence_mask", "correction_high": 1.7}, UP, 0.0),
        ({"correction": "sequence_mask"}, 0.0, 1.0),
    ],
)
def test_a_corrected_ratio_is_one_at_the_start_and_weighs_the_difference(
    tiny, name, options, weight, cut
):
    told = shifted(samples_from(tiny, REWARDS), -0.5)  # π/μ = e^0.5 on every token
    metrics = learner_of(tiny, ALGORITHMS[name], **options).update(told, GROUP, None)
    assert metrics["clip_share"] == 0
    assert metrics["correction/weight_mean"] == pytest.approx(weight, abs=1e-4)
    assert metrics["correction/cut_share"] == cut


def test_what_the_policy_differs_by_from_its_writer_is_measured(tiny):
    samples = samples_from(tiny, REWARDS)
    told = [*shifted(samples[:4], -0.5), *samples[4:]]
    metrics = learner_of(tiny, ALGORITHMS["grpo"]).update(told, GROUP, None)
    assert metrics["clip_share"] > 0
    n, far = sum(len(s.tokens) for s in samples), sum(len(s.tokens) for s in samples[:4])
    ess = (far * UP + n - far) ** 2 / (n * (far * UP**2 + n - far))
    assert metrics["ess"] == pytest.approx(ess, abs=1e-4)
    assert metrics["kl_writer"] == pytest.approx(far * (UP * 0.5 - UP + 1) / 12, abs=1e-4)


@pytest.mark.parametrize("behaviour", ["reference", "recomputed"])
def test_log_probs_that_nobody_told_are_taken_from_whom_one_asks(tiny, behaviour):
    samples = samples_from(tiny, REWARDS)
    learner = learner_of(tiny, ALGORITHMS["grpo"], behaviour=behaviour, correction="decoupled")
    learner.update(samples, GROUP, None)
    samples[1] = replace(samples[1], logps=None)
    tokens, batch, _ = learner._assemble(samples, GROUP)
    model = {"reference": learner.ref_logp, "recomputed": learner.logp}[behaviour](tokens)
    assert torch.equal(batch.writer_logp[1], model[1])
    assert (batch.correction[1][batch.mask[1]] == 1).all() == (behaviour == "recomputed")
    told = torch.tensor(samples[0].logps)
    assert torch.equal(batch.writer_logp[0, : len(told)], told)


def watch(learner, monkeypatch):
    """What the loss is given, one batch for each optimiser step."""
    given, loss = [], learner.algorithm.loss
    spied = copy.copy(learner.algorithm)
    monkeypatch.setattr(learner, "algorithm", spied)
    monkeypatch.setattr(
        spied, "loss", lambda output, batch: (given.append(batch), loss(output, batch))[1]
    )
    return given


@pytest.mark.parametrize("name", ["grpo", "grpo-drop", "spo"])
def test_a_second_pass_is_the_same_batch_again(tiny, name):
    """Where no old values are kept, also with a soft value that is of the present policy."""
    samples = samples_from(tiny, REWARDS)
    twice, passes = learner_of(tiny, ALGORITHMS[name]), learner_of(tiny, ALGORITHMS[name], epochs=2)
    for _ in range(2):
        twice.update(samples, GROUP, None)
    metrics = passes.update(samples, GROUP, None)
    for one, other in zip(twice.model.parameters(), passes.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert (passes.batches, weights_version(passes.model)) == (1, 2)
    once = learner_of(tiny, ALGORITHMS[name]).update(samples, GROUP, None)
    assert metrics["kept_share"] == once["kept_share"]


def test_ppos_old_policy_and_old_values_are_those_before_the_first_step(tiny, monkeypatch):
    samples = samples_from(tiny, REWARDS)
    whole = watch(learner := learner_of(tiny, ALGORITHMS["ppo-separate"]), monkeypatch)
    learner.update(samples, GROUP, None)
    parts = watch(
        learner := learner_of(tiny, ALGORITHMS["ppo-separate"], minibatches=3, epochs=2),
        monkeypatch,
    )
    metrics = learner.update(samples, GROUP, None)
    assert len(parts) == 6
    assert metrics["clip_share"] > 0
    for name in ("behaviour_logp", "values", "advantages", "returns"):
        before = sorted(getattr(whole[0], name)[whole[0].mask].tolist())
        for epoch in (parts[:3], parts[3:]):
            used = sorted(x for part in epoch for x in getattr(part, name)[part.mask].tolist())
            assert used == pytest.approx(before, abs=1e-6), name


def test_a_step_takes_whole_groups_in_an_order_of_its_own(tiny, monkeypatch):
    samples = samples_from(tiny, REWARDS)
    orders = []
    for seed in (0, 0, 1, 2, 3):
        learner = learner_of(tiny, ALGORITHMS["grpo"], minibatches=2, epochs=3)
        learner.seed, taken = seed, []
        orders.append(taken)
        tokens, batch, _ = learner._assemble(samples, GROUP)
        for rows, part in learner._mini_batches(tokens, batch):
            assert len(rows) == len(part.mask)
            assert part.sequence_share == part.token_share == 1
            assert rows.view(-1, GROUP).diff(dim=1).eq(1).all()
            assert rows.view(-1, GROUP)[:, 0].remainder(GROUP).eq(0).all()
            taken.append(rows.tolist())
        for epoch in range(3):
            step = taken[2 * epoch : 2 * epoch + 2]
            assert [len(rows) for rows in step] == [8, 4]
            assert sorted(row for rows in step for row in rows) == list(range(12))
    assert orders[0] == orders[1]
    assert any(other != orders[0] for other in orders[2:])
    learner = learner_of(tiny, ALGORITHMS["grpo"], minibatches=9)
    learner.update(samples, GROUP, None)
    assert weights_version(learner.model) == 3  # as many steps as there are groups
