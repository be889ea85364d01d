"""The check of engine against learner: what it measures, when it is made, which faults it finds."""

import dataclasses
import math

import pytest
import torch

from envs.problem import Problem
from experiments.engine_check import LogprobCheck, mismatch
from experiments.engines.hf import HFEngine
from experiments.learner.forward import score
from experiments.policy.loading import frozen_copy
from experiments.policy.lora import adapted, trained
from experiments.policy.policy import Policy, copy_weights
from experiments.sample import PromptedProblem
from tests.compose import engine_config, model_config, run_config, train_config

PROBLEMS = [
    PromptedProblem(Problem(str(i), "", (), ()), prompt)
    for i, prompt in enumerate([(2, 7, 9, 30), (2, 5), (2, 11, 3, 8, 40, 12, 6)])
]


class Scorer:
    """The part of a learner that a check reads."""

    pad = 0

    def __init__(self, policy, temperature, reference=None):
        self.policy, self.model = policy, policy.model
        self.temperature, self.reference = temperature, reference

    @torch.no_grad()
    def logp(self, tokens):
        return score(self.policy, tokens, self.temperature).logp

    @torch.no_grad()
    def ref_logp(self, tokens):
        return score(self.reference, tokens, self.temperature).logp


class Unheated(HFEngine):
    """Samples and tells log-probs at temperature 1, whatever was asked for."""

    def generate(self, request, finished=None):
        sampling = dataclasses.replace(request.sampling, temperature=1.0)
        return super().generate(dataclasses.replace(request, sampling=sampling))


def monitor(policy, engine, reference=None, **options):
    config = run_config(
        algo=None,
        engine=engine_config(**{"logprob_check_samples": 32} | options),
        train=train_config(temperature=0.7),
    )
    config.task.max_response_tokens = 12
    return LogprobCheck(config, engine, Scorer(policy, 0.7, reference), PROBLEMS)


def test_figures_are_those_of_the_difference():
    told, scored = torch.tensor([-1.0, -2.0, -3.0, -1.0]), torch.tensor([-1.0, -2.5, -2.9, -1.0])
    found = mismatch(told, scored, 0.2)
    assert found.mean == pytest.approx(0.15)
    assert found.max == pytest.approx(0.5)
    assert found.beyond == 0.25
    d = [0.5, -0.1]
    assert found.kl == pytest.approx(sum(math.exp(-x) - 1 + x for x in d) / 4)


def test_a_nan_is_beyond_the_bound_and_warned_of(tiny):
    found = mismatch(torch.tensor([-1.0, float("nan")]), torch.tensor([-1.0, -1.0]), 0.2)
    assert found.beyond == 0.5
    verdict = monitor(Policy(tiny), HFEngine(Policy(tiny), {1}, 0, 64)).summary(found)
    assert verdict.startswith("WARNING")


def test_the_loop_agrees_with_the_learner_to_rounding(tiny):
    watch = monitor(Policy(tiny), HFEngine(Policy(tiny), {1}, 0, 64))
    found = watch.check(1)
    assert found.max < 1e-4
    assert found.beyond == 0
    assert set(found.metrics()) == {
        f"mismatch/{name}" for name in ("mean", "max", "kl", "beyond", "bound", "to_base")
    }
    assert "WARNING" not in watch.summary(found)


def test_a_sync_left_out_is_caught(tiny):
    engine = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
    watch = monitor(Policy(tiny), engine)
    torch.manual_seed(1)
    with torch.no_grad():
        tiny.lm_head.weight.add_(torch.randn_like(tiny.lm_head.weight) * 0.1)
    found = watch.check(1)
    assert found.mean > 0.01
    assert found.beyond > 0.5
    assert watch.summary(found).startswith("WARNING: log-probs of the hf engine")
    engine.sync(Policy(tiny))
    assert "WARNING" not in watch.summary(watch.check(2))


def test_a_temperature_that_is_not_applied_is_caught(tiny):
    watch = monitor(Policy(tiny), Unheated(Policy(tiny), {1}, 0, 64))
    assert watch.summary(watch.check(1)).startswith("WARNING")


def test_the_bound_decides(tiny):
    engine = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
    with torch.no_grad():
        tiny.lm_head.weight.mul_(1.02)
    mean = monitor(Policy(tiny), engine).check(1).mean
    for bound, warned in ((mean / 2, True), (mean * 2, False)):
        watch = monitor(Policy(tiny), engine, logprob_check_bound=bound)
        assert watch.summary(watch.check(1)).startswith("WARNING") == warned


def test_checks_wait_for_fresh_weights_and_for_their_turn(tiny):
    options = {"logprob_check_every": 4, "logprob_check_samples": 1}
    watch = monitor(Policy(tiny), HFEngine(Policy(tiny), {1}, 0, 64), **options)
    made = []
    for step in range(1, 16):
        if watch.due(step, policy_lag=(step - 1) % 3):
            watch.check(step)
            made.append(step)
    assert made == [1, 7, 13]  # fresh at 1, 4, 7, …
    assert not monitor(Policy(tiny), None, logprob_check_every=0).due(1, 0)


def moved(policy, by):
    """The policy after a little training, as it were."""
    after, generator = frozen_copy(policy), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in after.model.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator)
    return after


def test_an_engine_that_writes_with_the_base_is_found_below_the_bound_too(tiny):
    base = Policy(tiny)
    now = moved(base, 4e-6)
    for generating, warned in ((base, True), (now, False)):
        watch = monitor(now, HFEngine(generating, {1}, 0, 64), reference=base)
        found = watch.check(1)
        assert found.mean < found.bound  # alone it would have passed
        assert found.warned is warned
        assert watch.summary(found).startswith("WARNING") is warned
    assert found.to_base > 10 * found.mean  # nearer to the trained weights


def test_where_nothing_has_moved_rounding_favours_nobody(tiny):
    found = monitor(Policy(tiny), HFEngine(Policy(tiny), {1}, 0, 64), reference=Policy(tiny)).check(
        1
    )
    assert found.to_base == found.mean
    assert not found.warned


def test_an_ignored_adapter_is_found(tiny):
    base = Policy(tiny)
    policy = adapted(base, model_config(adapter="lora", adapter_rank=4), seed=0)
    with torch.no_grad():
        for parameter in trained(policy.model):
            parameter += 1e-2
    engine = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
    policy.version = 3
    copy_weights(policy, into=engine.policy)
    assert not monitor(policy, engine, reference=base).check(1).warned
    ignores = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
    ignores.policy.version = 3  # it says that it took them
    assert monitor(policy, ignores, reference=base).check(1).warned


def test_without_learning_the_mismatch_stays_flat(tiny):
    policy = Policy(tiny)
    own = frozen_copy(policy)
    watch = monitor(policy, HFEngine(own, {1}, 0, 64), logprob_check_every=1)
    means = []
    for step in range(1, 7):
        copy_weights(policy, into=own)
        means.append(watch.check(step).mean)
    assert max(means) < 3 * min(means) < 1e-5
