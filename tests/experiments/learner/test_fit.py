"""What does not fit is said in one line before weights are read, with what would."""

import dataclasses
import re

import pytest
import torch
from transformers import LlamaConfig

from algorithms.spo import SPO, SPOConfig
from experiments.errors import UserError
from experiments.learner import fit, models
from experiments.learner.memory import GIB, estimate, shape_of
from experiments.picks import pick
from tests.experiments.compose import config

NEEDS = SPO(SPOConfig(), 1.0).needs
CPU = torch.device("cpu")


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
    return pick(config(*overrides), "cpu")


def test_eight_billion_parameters_do_not_fit_and_the_line_says_why(llama_8b):
    chosen = config_of("model=local", f"model.path={llama_8b}", "model.device=cpu")
    if fit.free_bytes(CPU) > 150 * GIB:
        pytest.skip("they fit here")
    with pytest.raises(UserError) as raised:
        fit.check_memory(chosen, NEEDS)
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
        fit.check_memory(chosen, NEEDS)


def advised(chosen, shape, free):
    """The overrides of the advice, and whether the run with them fits in `free`."""
    said = fit.what_fits(chosen, NEEDS, shape, CPU, free)
    overrides = dict(part.split("=") for part in re.findall(r"[\w.]+=\w+", said))
    for key, value in overrides.items():
        section, name = key.split(".")
        kind = type(getattr(getattr(chosen, section), name))
        changed = dataclasses.replace(getattr(chosen, section), **{name: kind(value)})
        chosen = dataclasses.replace(chosen, **{section: changed})
    return set(overrides), estimate(shape, chosen, NEEDS, False).total <= free


def test_the_advice_fits_and_is_the_least_change(llama_8b):
    chosen = config_of("model=local", f"model.path={llama_8b}", "model.device=cpu")
    shape = shape_of(models.read_config(chosen.model))
    whole = estimate(shape, chosen, NEEDS, False)
    held = sum(whole.held.values())
    assert advised(chosen, shape, whole.total - 1) == ({"train.micro_batch"}, True)
    assert advised(chosen, shape, held + 5 * GIB) == (
        {"train.micro_batch", "engine.batch_size"},
        True,
    )
    assert fit.what_fits(chosen, NEEDS, shape, CPU, 2 * GIB).startswith("model=nano ")
    assert fit.what_fits(chosen, NEEDS, shape, CPU, 2**20).startswith("none of the models")


def test_the_bundled_model_fits_and_the_estimate_is_recorded():
    facts = fit.check_memory(config_of(), NEEDS)
    assert facts["estimate_mb"] < facts["free_mb"]
    assert facts["estimate_mb"] == pytest.approx(
        sum(facts["held_mb"].values()) + max(facts["phases_mb"].values()), abs=1
    )
