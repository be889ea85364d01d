"""Runs that surely do not fit are refused; each pass is charged once, as torch counts it."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from algorithms import make
from algorithms.base import Needs
from experiments.errors import UserError
from experiments.learner import costs
from experiments.learner.batching import pack
from experiments.learner.costs import (
    GIB,
    check_memory,
    critic_flops,
    estimate,
    free_bytes,
    model_flops,
    texts_of,
)
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy
from experiments.run_dir.ledger import Text
from tests.compose import model_config
from tests.experiments.compose import config
from tests.experiments.kinds import SLIDING, model_of
from tests.experiments.learner.learning import ALGORITHMS, GROUP, REWARDS, learner_of, samples_from

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}


def resolved(*overrides):
    chosen = config("algo=grpo", *overrides)
    task = replace(chosen.task, max_prompt_tokens=64, max_response_tokens=64)
    model = replace(chosen.model, dtype="float32", device="cpu")
    return replace(chosen, task=task, model=model, engine=replace(chosen.engine, name="hf"))


def test_what_a_run_holds_is_exact():
    model_config = LlamaConfig(**SIZES)
    parts = estimate(model_config, resolved("eval.kl_samples=0"), Needs(), on_gpu=False)
    model = AutoModelForCausalLM.from_config(model_config)
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert parts["policy"] == parts["gradients"] == parts["AdamW's moments"] / 2 == weights
    assert "critic" not in parts and "reference" not in parts
    scored = estimate(model_config, resolved(), Needs(critic="log_probs"), on_gpu=False)
    assert scored["gradients"] == 2 * weights and scored["critic"] == weights


@pytest.mark.parametrize(
    ("overrides", "needs", "more"),
    [
        ([], Needs(critic="separate"), "critic"),
        ([], Needs(reference=True), "reference"),
        ([], Needs(copies=("average",)), "earlier weights"),
        (["train.lag=2"], Needs(), "the rollout policy's copy"),
        (["model.adapter=lora"], Needs(), "the engine's weights"),
    ],
)
def test_each_copy_of_the_weights_is_counted(overrides, needs, more):
    model_config = LlamaConfig(**SIZES)
    chosen = resolved("eval.kl_samples=0", *overrides)
    assert estimate(model_config, chosen, needs, on_gpu=False)[more] > 0


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize(
    "smaller", ["train.micro_batch=1", "engine.batch_size=1", "model.adapter=lora"]
)
def test_a_change_that_is_named_needs_less(algorithm, smaller):
    model_config, needs = LlamaConfig(**SIZES), make(algorithm).needs
    sizes = [
        sum(estimate(model_config, resolved(*more), needs, on_gpu=True).values())
        for more in ([], [smaller])
    ]
    assert sizes[1] <= sizes[0]


def test_ranks_share_what_the_learner_holds():
    model_config, chosen = LlamaConfig(**SIZES), resolved("eval.kl_samples=0")
    alone = estimate(model_config, chosen, Needs(), on_gpu=True)
    shared = estimate(model_config, chosen, Needs(), on_gpu=True, ranks=4)
    assert shared["gradients"] == alone["gradients"] // 4
    assert shared["the engine's weights"] == alone["policy"]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["train.micro_batch=64", "engine.batch_size=1"], "train.micro_batch"),
        (["train.micro_batch=1", "engine.batch_size=4096"], "engine.batch_size"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_with_a_key(overrides, key, monkeypatch):
    monkeypatch.setattr(costs, "free_bytes", lambda _: 2**20)
    prompts = ["train.prompts=32", "eval.samples=1000", "model.device=cpu"]
    chosen = resolved(*prompts, *overrides)
    with pytest.raises(UserError, match=rf"needs about .* GiB on cpu .*{key}"):
        check_memory(chosen, Needs())
    monkeypatch.setattr(costs, "free_bytes", lambda _: 400 * GIB)
    assert check_memory(chosen, Needs())["free_mb"] == 400 * 1024


def test_free_memory_is_positive():
    assert free_bytes(torch.device("cpu")) > 0


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


@pytest.mark.parametrize("name", ["ppo-separate", "prime"])
def test_a_critic_that_learns_apart_has_one_pass_in_a_batchs_only_step(tiny, name):
    algorithm = ALGORITHMS[name]
    flops, texts = charged(tiny, algorithm)
    model, critic = model_flops(tiny), critic_flops(Policy(tiny))
    critic = model if name == "prime" else critic  # its log-probs take all logits
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
