"""The KL to the base: zero at the start, the true one later, and the same for every algorithm."""

import copy
from dataclasses import replace

import pytest
import torch

from algorithms.grpo import GRPO, GRPOConfig
from envs.problem import Problem
from experiments.config.schema import TrainConfig
from experiments.engines.hf import HFEngine
from experiments.evaluation.divergence import kl_to_base
from experiments.learner.learner import Learner
from experiments.policy.policy import Policy
from experiments.run_dir.budget import Ledger
from experiments.sample import PromptedProblem
from tests.experiments.compose import config

PROMPTS = [PromptedProblem(Problem(f"p{i}", "", (), ()), (2, 5 + i, 9)) for i in range(8)]


def measured(model, learner, samples=64, tokens=1):
    run = config(f"eval.kl_samples={samples}")
    run.task.max_response_tokens = tokens
    engine = HFEngine(Policy(model), {1}, 0, 512)
    return kl_to_base(replace(run, seed=3), 1, PROMPTS, engine, learner, 1e-3)[0]


def learner_of(model, **options):
    bare = GRPO(GRPOConfig(kl_coef=0.0), 1.0)  # its loss needs no reference
    return Learner(Policy(model), 0, bare, TrainConfig(), 10, Ledger(), **options)


def test_at_the_start_it_is_zero(tiny):
    assert measured(tiny, learner_of(tiny, keep_reference=True)) == pytest.approx(0, abs=1e-5)


def test_it_is_the_kl_of_what_the_policy_writes(tiny):
    """One token: the KL of the next-token distributions, summed over the whole vocabulary."""
    model = copy.deepcopy(tiny)
    learner = learner_of(model, keep_reference=True)
    torch.manual_seed(1)
    with torch.no_grad():
        model.lm_head.weight.add_(torch.randn_like(model.lm_head.weight) * 0.4)
        exact = []
        for prompt in PROMPTS:
            ids = torch.tensor([prompt.tokens])
            new, old = (m(ids).logits[0, -1].log_softmax(-1) for m in (model, tiny))
            exact.append((new.exp() * (new - old)).sum())
    expected = torch.stack(exact).mean().item()
    assert expected > 0.05
    assert measured(model, learner, samples=512) == pytest.approx(expected, rel=0.15)


def test_no_reference_is_held_where_nothing_asks_for_it(tiny):
    assert learner_of(tiny).reference is None
