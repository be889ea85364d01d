"""What does not fit is said in one line before weights are read, with what would."""

import dataclasses
import json
import re

import pytest
import torch
from transformers import LlamaConfig

from algorithms.spo import SPO
from experiments.benchmarks.fits import MODELS
from experiments.config.resolve_defaults import resolve_defaults
from experiments.errors import UserError
from experiments.learner import memory_check
from experiments.learner.memory import GIB, estimate
from experiments.learner.memory_advice import (
    MemoryLimit,
    needs_of,
    smaller_pieces,
    suggest_change,
    with_value,
)
from experiments.learner.shapes import shape_of, shape_of_json
from experiments.policy import loading
from tests.compose import options_of
from tests.experiments.compose import config

NEEDS = SPO(options_of("spo"), 1.0).needs
CPU = torch.device("cpu")


def on_cpu(free):
    return MemoryLimit(NEEDS, free)


def read_shape(model):
    return memory_check._shape(model)


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """The other named models' configs are not fetched."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def llama_8b(tmp_path_factory):
    """The config of Llama 3.1 8B; its weights are nowhere."""
    folder = tmp_path_factory.mktemp("llama")
    widths = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    LlamaConfig(vocab_size=128256, **widths, **heads).save_pretrained(folder)
    return folder


def config_of(*overrides):
    return resolve_defaults(config(*overrides), "cpu")


def test_eight_billion_parameters_do_not_fit_and_the_line_says_why(llama_8b):
    chosen = config_of("model=local", f"model.path={llama_8b}", "model.device=cpu")
    if memory_check.free_bytes(CPU) > 150 * GIB:
        pytest.skip("they fit here")
    with pytest.raises(UserError) as raised:
        memory_check.check_memory(chosen, NEEDS)
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith(f"model.path={llama_8b}: this run needs about ")
    assert "AdamW's moments 59.83" in line  # 8,030,261,248 parameters, two moments of four bytes
    assert "GiB are free" in line
    assert line.endswith(" fits") or "none of the models" in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_large_model_is_not_put_on_a_cpu_unasked(llama_8b):
    chosen = config_of("model=local", f"model.path={llama_8b}")
    with pytest.raises(UserError, match=r"no GPU is visible here, and 8\.0 B .*model\.device=cpu"):
        memory_check.check_memory(chosen, NEEDS)


def advised(chosen, shape, free):
    """The overrides of the advice, and whether the run with them fits in `free`."""
    said = suggest_change(chosen, shape, on_cpu(free), read_shape)
    overrides = dict(part.split("=") for part in re.findall(r"[\w.]+=\w+", said))
    for key, value in overrides.items():
        section, name = key.split(".")
        kind = type(getattr(getattr(chosen, section), name))
        changed = dataclasses.replace(getattr(chosen, section), **{name: kind(value)})
        chosen = dataclasses.replace(chosen, **{section: changed})
    return set(overrides), on_cpu(free).estimate(shape, chosen).total <= free


def test_the_advice_fits_and_is_the_least_change(llama_8b):
    chosen = config_of(
        "model=local", f"model.path={llama_8b}", "model.device=cpu", "model.dtype=float32"
    )
    shape = shape_of(loading.read_config(chosen.model))
    whole = estimate(shape, chosen, NEEDS, False)
    held = sum(whole.held.values())
    assert advised(chosen, shape, whole.total - 1) == ({"train.micro_batch"}, True)
    assert advised(chosen, shape, held + 5 * GIB) == (
        {"train.micro_batch", "engine.batch_size"},
        True,
    )
    smaller = suggest_change(chosen, shape, on_cpu(2 * GIB), read_shape)
    assert smaller.startswith("model=nano_5m ")
    none = suggest_change(chosen, shape, on_cpu(2**20), read_shape)
    assert none.startswith("none of the models")


@pytest.mark.parametrize("colocate", [False, True])
def test_a_vllm_takes_less_of_a_gpu_where_that_fits(colocate, llama_8b):
    chosen = config_of("model=local", f"model.path={llama_8b}", "model.dtype=bfloat16")
    chosen.model.adapter, chosen.train.micro_batch = "lora", 1
    chosen.model.checkpoint_activations = True
    chosen.engine.name, chosen.engine.colocate = "vllm", colocate
    shape, card = shape_of(loading.read_config(chosen.model)), 80 * 10**9

    def room(free):
        return MemoryLimit(NEEDS, free, on_gpu=True, card=card)

    most, last = 0.9, None
    for gigabytes in range(78, 20, -1):
        chosen.engine.memory_share, given = most, room(gigabytes * 10**9)
        if (pieces := smaller_pieces(chosen, shape, given)) is None:
            break
        (share,) = pieces
        last = chosen.engine.memory_share = float(share.removeprefix("engine.memory_share="))
        assert last < most
        assert given.estimate(shape, chosen).total <= given.free
        # 16.06 GB of weights, and the keys and values of one request
        assert last * card > 16.06e9 + 768 * 2 * 8 * 128 * 32 * 2
    assert last == 0.25  # with .2, 16 GB, it would not start


def test_what_fits_a_rank_is_for_its_part(llama_8b, monkeypatch):
    overrides = ("model.dtype=bfloat16", "model.device=cpu", "train.micro_batch=1")
    chosen = config_of("model=local", f"model.path={llama_8b}", *overrides)
    shape = shape_of(loading.read_config(chosen.model))
    short = estimate(shape, chosen, NEEDS, on_gpu=False, ranks=8).total - 1
    monkeypatch.setattr(memory_check, "free_bytes", lambda _: short)
    with pytest.raises(UserError, match=r"; engine.batch_size=\d+ fits$"):
        memory_check.check_memory(chosen, NEEDS, ranks=8)
    with pytest.raises(UserError, match=r"; model.adapter=lora fits$"):
        memory_check.check_memory(chosen, NEEDS)


QWEN_1B5 = MODELS["1.5 B"]
CARD = int(79.1 * GIB)


def ppo_with_vllm():
    """PPO of a data set with vLLM on the learner's GPU, as by default where vLLM is installed."""
    chosen = resolve_defaults(config("algo=ppo", "task=taco", "engine.name=hf"), "cuda")
    return with_value(chosen, "engine.name", "vllm")


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (75, "engine.memory_share=0.25 train.micro_batch=1 fits"),
        (
            70,
            "engine.memory_share=0.15 train.micro_batch=1 model.checkpoint_activations=true fits",
        ),
        (66, "algo.critic=shared fits"),
        (28, "model.adapter=lora engine.memory_share=0.3 fits"),
    ],
)
def test_what_keeps_results_is_offered_before_what_makes_another_run(free, said):
    shape, chosen = shape_of_json(QWEN_1B5), ppo_with_vllm()
    limit = MemoryLimit(needs_of(chosen), int(free * GIB), on_gpu=True, card=CARD)
    assert suggest_change(chosen, shape, limit, lambda _: None) == said


def test_fewer_conversations_to_a_problem_are_offered_before_a_smaller_model():
    given = ("algo=grpo", "task=taco", "task.turns=3", "model.adapter=lora")
    chosen = resolve_defaults(config(*given), "cuda")
    shape = shape_of_json(QWEN_1B5)
    limit = MemoryLimit(needs_of(chosen), 11 * GIB, on_gpu=True, card=11 * GIB)
    said = suggest_change(chosen, shape, limit, lambda _: None)
    assert said.startswith("eval.samples=8 ") and "engine.batch_size=" in said


@pytest.fixture
def qwen_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN_1B5))
    return tmp_path


def test_before_any_job_the_one_that_no_gpu_here_can_hold_is_named(qwen_folder, monkeypatch):
    monkeypatch.setattr(memory_check, "largest_gpu", lambda: CARD)
    chosen = ppo_with_vllm()
    chosen.model.path = str(qwen_folder)
    with pytest.raises(
        UserError, match=r"^algo=ppo model\.path=.* about 8[67].* on a GPU"
    ) as raised:
        memory_check.check_jobs([chosen])
    assert "the largest GPU here has 79.10 GiB; engine.memory_share=" in str(raised.value)
    fits = with_value(with_value(chosen, "engine.memory_share", 0.2), "train.micro_batch", 1)
    memory_check.check_jobs([fits])


def test_what_cannot_be_known_ahead_passes(qwen_folder, monkeypatch):
    chosen = ppo_with_vllm()
    chosen.model.path = str(qwen_folder)
    memory_check.check_jobs([chosen])  # no GPU here
    monkeypatch.setattr(memory_check, "largest_gpu", lambda: GIB)
    memory_check.check_jobs([with_value(chosen, "model.device", "cpu")])
    memory_check.check_jobs([with_value(chosen, "model.path", "nobody/nothing")])
    (qwen_folder / "config.json").write_text(json.dumps(QWEN_1B5 | {"model_type": "gpt2"}))
    memory_check.check_jobs([chosen])
