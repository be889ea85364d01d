"""Blocks that keep their inputs alone: the same gradients from less memory."""

import copy

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from experiments.errors import UserError
from experiments.learner.forward import Critic, score
from experiments.policy.activation_checkpointing import checkpoint_activations
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy
from tests.compose import model_config
from tests.experiments.learner.learning import (
    ALGORITHMS,
    GROUP,
    REWARDS,
    learner_over,
    samples_from,
)
from tests.experiments.learner.test_forward import tokens  # noqa: F401

CASES = ["whole", "adapter", "grouped", "gpt2"]


def model_of(case, tiny):
    torch.manual_seed(0)
    if case == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=48, n_embd=16, n_layer=2, n_head=2)).eval()
    if case == "grouped":
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        return MistralForCausalLM(
            MistralConfig(vocab_size=48, sliding_window=None, **sizes, **heads)
        ).eval()
    return copy.deepcopy(tiny)


def gradients(policy, tokens):  # noqa: F811
    output = score(policy, tokens, 0.7)
    weights = torch.randn(output.logp.shape, generator=torch.Generator().manual_seed(0))
    ((output.logp + output.entropy) * weights).sum().backward()
    return output.logp, {
        n: p.grad for n, p in policy.model.named_parameters() if p.grad is not None
    }


@pytest.mark.parametrize("case", CASES)
def test_log_probs_and_gradients_are_the_same(case, tiny, tokens):  # noqa: F811
    policy = Policy(model_of(case, tiny))
    again = copy.deepcopy(policy)
    checkpoint_activations(again)
    if case == "adapter":
        pytest.importorskip("peft")
        config = model_config(adapter="lora", adapter_rank=4)
        policy, again = adapted(policy, config, 0), adapted(again, config, 0)
    (logp, found), (kept, expected) = gradients(again, tokens), gradients(policy, tokens)
    assert torch.equal(logp, kept)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-6)
    assert not any("forward" in vars(module) for module in again.model.modules())


@pytest.mark.parametrize("name", ["spo", "ppo-separate"])
def test_a_learner_takes_the_same_step(name, tiny):
    samples = samples_from(tiny, REWARDS)
    learners = []
    for checkpointed in (False, True):
        policy = Policy(copy.deepcopy(tiny))
        if checkpointed:
            checkpoint_activations(policy)
        learners.append(learner_over(policy, ALGORITHMS[name]))
    kept, found = (learner.update(samples, GROUP, None) for learner in learners)
    assert found == pytest.approx(kept, abs=1e-6)


def test_a_critic_is_a_copy_that_does_so_too(tiny, tokens):  # noqa: F811
    policy = Policy(copy.deepcopy(tiny))
    checkpoint_activations(policy)
    critics = [Critic(copy.deepcopy(each)) for each in (policy, Policy(tiny))]
    saved = []
    for critic in critics:
        sizes = []
        keep = lambda tensor, sizes=sizes: sizes.append(tensor.numel()) or tensor  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            critic(tokens)
        saved.append(sum(sizes))
    assert saved[0] < saved[1] / 3


def test_what_cannot_be_run_again_is_refused():
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    sliding = MistralForCausalLM(MistralConfig(vocab_size=9, sliding_window=4, **sizes, **heads))
    with pytest.raises(UserError, match=r"checkpoint_activations=true.*Sliding"):
        checkpoint_activations(Policy(sliding))
