"""Runs that surely do not fit are refused, with a key to change."""

from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig

from algorithms import make
from algorithms.base import Needs
from experiments.errors import UserError
from experiments.learner import memory
from experiments.learner.memory import GIB, check_memory, estimate, free_bytes
from experiments.policy import loading
from tests.experiments.compose import config

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
    model = loading.random_model(model_config, torch.device("cpu"), torch.float32)
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert (parts["policy"], parts["gradients"], parts["AdamW's moments"]) == (
        *(weights, weights),
        2 * weights,
    )
    assert "critic" not in parts and "reference" not in parts


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
    monkeypatch.setattr(memory, "free_bytes", lambda _: 2**20)
    prompts = ["train.prompts=32", "eval.samples=1000", "model.device=cpu"]
    chosen = resolved(*prompts, *overrides)
    with pytest.raises(UserError, match=rf"needs about .* GiB on cpu .*{key}"):
        check_memory(chosen, Needs())
    monkeypatch.setattr(memory, "free_bytes", lambda _: 400 * GIB)
    assert check_memory(chosen, Needs())["free_mb"] == 400 * 1024


def test_free_memory_is_positive():
    assert free_bytes(torch.device("cpu")) > 0
