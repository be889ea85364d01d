"""Counted operations against those that torch counts while a model runs."""

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from experiments.learner.forward import Tokens, score
from experiments.policy.lora import adapted
from experiments.policy.model_flops import critic_flops, model_flops
from experiments.policy.policy import Policy
from experiments.run_dir.flops import Text
from tests.compose import model_config
from tests.experiments.kinds import SLIDING, model_of

LENGTH = 99


def counted(function):
    """Operations of a call by torch; its fused attention has no count on a CPU."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        result = function()
    return counter.get_total_flops(), result


def forward_and_backward(model):
    ids = torch.randint(3, 40, (1, LENGTH))
    forward, logits = counted(lambda: model(ids, use_cache=False).logits)
    return forward, counted(lambda: logits.logsumexp(-1).sum().backward())[0]


def of_masked_pairs(flops):
    """Operations of the pairs that torch computes and masks: it counts a square in each layer."""
    seen = [min(t, window or t) for _, window in flops.attention for t in range(1, LENGTH + 1)]
    (width,) = {width for width, _ in flops.attention}
    return 4 * width * (LENGTH**2 * len(flops.attention) - sum(seen))


KINDS = {"llama": {}, "gpt2": {"n_inner": 40}, "qwen3": {"head_dim": 8}} | SLIDING


@pytest.mark.parametrize("kind", KINDS)
def test_it_counts_what_torch_counts_but_masked_pairs(kind):
    model = model_of(kind, **KINDS[kind])
    flops, texts = model_flops(model), [Text(1, [LENGTH])]
    forward, backward = forward_and_backward(model)
    masked = of_masked_pairs(flops)
    assert flops.forward(texts) == forward - masked
    assert flops.backward(texts) == backward - 2 * masked


def test_the_bundled_model_within_five_percent(nano):
    policy, _ = nano
    flops, texts = model_flops(policy.model), [Text(1, [LENGTH])]
    measured = forward_and_backward(policy.model)
    policy.model.zero_grad()
    assert flops.forward(texts) == pytest.approx(measured[0], rel=0.05)
    assert flops.backward(texts) == pytest.approx(measured[1], rel=0.05)


def test_the_learners_passes_within_five_percent(nano):
    """They share the prompt of eight responses, and of it the last layer has no full gradient."""
    policy, _ = nano
    responses = [torch.randint(3, 1000, (40,)).tolist() for _ in range(8)]
    tokens = Tokens.pack([list(range(3, 63))], [0] * 8, responses, 0, policy.device)
    forward, output = counted(lambda: score(policy, tokens, 1.0))
    backward, _ = counted(lambda: output.logp.sum().backward())
    policy.model.zero_grad()
    flops, texts = model_flops(policy.model), [Text(60, [40] * 8)]
    assert flops.forward(texts) == pytest.approx(forward, rel=0.05)
    assert flops.backward(texts) == pytest.approx(backward, rel=0.05)


def test_frozen_weights_have_no_gradient_and_activations_have(tiny):
    policy = adapted(Policy(tiny), model_config(adapter="lora", adapter_rank=4), 0)
    flops, plain = model_flops(policy.model), model_flops(tiny)
    assert (plain.trained_head, flops.trained_blocks) == (0, flops.blocks - plain.blocks)
    forward, backward = forward_and_backward(policy.model)
    texts, masked = [Text(1, [LENGTH])], of_masked_pairs(flops)
    assert flops.forward(texts) == forward - masked
    # The first layer's input, the embedding of tokens, needs no gradient, which is counted.
    assert backward - 2 * masked < flops.backward(texts) < 1.1 * (backward - 2 * masked)


def test_a_critic_has_a_head_of_its_own(tiny):
    flops = critic_flops(Policy(tiny))
    assert (flops.blocks, flops.head) == (model_flops(tiny).blocks, 32)


OTHERS = {
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 16, "head_dim": 8},
    "mamba": {},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_are_not_counted(kind):
    sizes = {"vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 0}
    if kind != "mamba":
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes | OTHERS[kind]))
    assert math.isnan(model_flops(model).forward([Text(3, [2])]))
