"""Blocks that keep their inputs alone: the same gradients from less memory."""

import copy

import pytest
import torch

from experiments.errors import UserError
from experiments.learner.forward import Critic, score
from experiments.policy.lora import adapted
from experiments.policy.patches import checkpoint_activations
from experiments.policy.policy import Policy
from tests.compose import model_config
from tests.experiments.kinds import SLIDING, model_of
from tests.experiments.learner.test_forward import tokens  # noqa: F401


def gradients(policy, tokens):  # noqa: F811
    output = score(policy, tokens, 0.7)
    weights = torch.randn(output.logp.shape, generator=torch.Generator().manual_seed(0))
    ((output.logp + output.entropy) * weights).sum().backward()
    named = policy.model.named_parameters()
    return output.logp, {name: p.grad for name, p in named if p.grad is not None}


@pytest.mark.parametrize("case", ["packed", "adapter", "padded", "gpt2"])
def test_log_probs_and_gradients_are_the_same(case, tiny, tokens):  # noqa: F811
    policy = Policy(model_of("gpt2") if case == "gpt2" else copy.deepcopy(tiny))
    if case == "padded":
        policy.model.config._attn_implementation = "eager"
    again = copy.deepcopy(policy)
    checkpoint_activations(again)
    if case == "adapter":
        config = model_config(adapter="lora", adapter_rank=4)
        policy, again = adapted(policy, config, 0), adapted(again, config, 0)
    (logp, found), (kept, expected) = gradients(again, tokens), gradients(policy, tokens)
    assert torch.equal(logp, kept)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-6)
    assert not any("forward" in vars(module) for module in again.model.modules())


def test_a_critic_keeps_no_activations_either(tiny, tokens):  # noqa: F811
    policy = Policy(copy.deepcopy(tiny))
    checkpoint_activations(policy)
    saved = []
    for critic in [Critic(copy.deepcopy(each)) for each in (policy, Policy(tiny))]:
        sizes = []
        keep = lambda tensor, sizes=sizes: sizes.append(tensor.numel()) or tensor  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            critic(tokens)
        saved.append(sum(sizes))
    assert saved[0] < saved[1] / 3


def test_models_with_a_sliding_window_are_refused():
    kind = sorted(SLIDING)[0]
    with pytest.raises(UserError, match=r"checkpoint_activations=true.*Sliding"):
        checkpoint_activations(Policy(model_of(kind, **SLIDING[kind])))
