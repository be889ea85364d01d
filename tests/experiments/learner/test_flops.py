"""Each pass of an update is charged, once, and counts agree with torch's."""

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from algorithms.ppo import PPO
from experiments.learner.batching import pack
from experiments.learner.flops import critic_flops, model_flops, texts_of
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy
from experiments.run_dir.flops import Text
from tests.compose import model_config, options_of
from tests.experiments.kinds import SLIDING, model_of
from tests.experiments.learner.learning import ALGORITHMS, GROUP, REWARDS, learner_of, samples_from


def charged(model, algorithm, **options):
    samples = samples_from(model, REWARDS)
    learner = learner_of(model, algorithm, **options)
    learner.update(samples, GROUP, None)
    return learner.ledger.counts.flops, texts_of(pack(samples, 0, model.device))


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_reference_once_and_the_policy_each_epoch(tiny, epochs):
    flops, texts = charged(tiny, ALGORITHMS["grpo"], epochs=epochs)
    model = model_flops(tiny)
    assert ALGORITHMS["grpo"].needs.reference
    trained = model.forward(texts) + model.backward(texts)
    assert flops == model.forward(texts) + epochs * trained


def test_a_critic_that_learns_apart_has_one_pass_in_a_batchs_only_step(tiny):
    algorithm = PPO(options_of("ppo"), 1.0)
    flops, texts = charged(tiny, algorithm)
    model, critic = model_flops(tiny), critic_flops(Policy(tiny))
    expected = critic.forward(texts) + critic.backward(texts)
    expected += model.forward(texts) + model.backward(texts)
    expected += model.forward(texts) if algorithm.needs.reference else 0
    assert flops == expected
    twice, texts = charged(tiny, algorithm, epochs=2)
    learned = critic.forward(texts) + critic.backward(texts)
    learned += model.forward(texts) + model.backward(texts)
    before = critic.forward(texts) + (model.forward(texts) if algorithm.needs.reference else 0)
    assert twice == before + 2 * learned


def test_a_shared_critic_reads_with_the_policy(tiny):
    flops, texts = charged(tiny, ALGORITHMS["ppo-shared"])
    model, width = model_flops(tiny), 32
    predicted = sum(sum(text.responses) for text in texts)
    value_head = 2 * width * predicted
    before = model.forward(texts) - 2 * (model.head - width) * predicted
    expected = before + model.forward(texts) + model.backward(texts) + 3 * value_head
    expected += model.forward(texts) if ALGORITHMS["ppo-shared"].needs.reference else 0
    assert flops == expected


def test_log_probs_at_the_start_of_an_update_are_a_pass(tiny):
    plain, texts = charged(tiny, ALGORITHMS["grpo"])
    corrected, _ = charged(tiny, ALGORITHMS["grpo"], correction="truncated")
    assert corrected - plain == model_flops(tiny).forward(texts)


LENGTH = 99


def counted(function):
    """Return a call's operations by torch, whose fused attention has no count on a CPU."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        result = function()
    return counter.get_total_flops(), result


def forward_and_backward(model):
    ids = torch.randint(3, 40, (1, LENGTH))
    forward, logits = counted(lambda: model(ids, use_cache=False).logits)
    return forward, counted(lambda: logits.logsumexp(-1).sum().backward())[0]


def of_masked_pairs(flops):
    """Return the operations of masked pairs: torch counts a square in each layer."""
    seen = [min(t, window or t) for _, window in flops.attention for t in range(1, LENGTH + 1)]
    (width,) = {width for width, _ in flops.attention}
    return 4 * width * (LENGTH**2 * len(flops.attention) - sum(seen))


KINDS = {"llama": {}, "gpt2": {"n_inner": 40}, "qwen3": {"head_dim": 8}} | SLIDING


@pytest.mark.parametrize("kind", KINDS)
def test_a_models_operations_are_those_that_torch_counts(kind):
    model = model_of(kind, **KINDS[kind])
    flops, texts = model_flops(model), [Text(1, [LENGTH])]
    forward, backward = forward_and_backward(model)
    masked = of_masked_pairs(flops)
    assert flops.forward(texts) == forward - masked
    assert flops.backward(texts) == backward - 2 * masked


def test_frozen_weights_have_no_gradient_and_activations_have(tiny):
    policy = adapted(Policy(tiny), model_config(adapter="lora", adapter_rank=4), 0)
    flops, plain = model_flops(policy.model), model_flops(tiny)
    assert (plain.trained_head, flops.trained_blocks) == (0, flops.blocks - plain.blocks)
    forward, backward = forward_and_backward(policy.model)
    texts, masked = [Text(1, [LENGTH])], of_masked_pairs(flops)
    assert flops.forward(texts) == forward - masked
    # The first layer's input, the embedding of tokens, needs no gradient, which is counted.
    assert backward - 2 * masked < flops.backward(texts) < 1.1 * (backward - 2 * masked)


def test_mixtures_of_experts_are_not_counted():
    sizes = {"vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "num_local_experts": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("mixtral", **sizes, **heads))
    assert math.isnan(model_flops(model).forward([Text(3, [2])]))
