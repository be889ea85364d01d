"""Prompts that are held once for all their responses: the tokens and log-probs of rows that each
hold their own."""

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from experiments.engines import hf
from experiments.engines.base import Sampling
from experiments.engines.caches import SHARED, OwnKeys, SharedKeys, keys_for
from experiments.engines.hf import HFEngine

PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6]]
SEEDS = [range(9), range(100, 101), range(200, 217)]  # groups of different sizes
SHAPE = {"vocab_size": 41, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


def model_of(kind):
    torch.manual_seed(0)
    if kind == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 41, "n_positions": 64}
        model = GPT2LMHeadModel(GPT2Config(**sizes, attn_implementation="sdpa"))
    elif kind == "shared heads":
        heads = {"num_attention_heads": 4, "num_key_value_heads": 1}
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE, **heads, attn_implementation="sdpa"))
    else:
        heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, **heads, attn_implementation="sdpa"))
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8 if kind != "gpt2" else 5)
    return model.eval()


def written(model, how, monkeypatch, sampling=None):
    layers = model.config.num_hidden_layers
    with monkeypatch.context() as patch:
        patch.setattr(hf, "keys_for", lambda _, real, steps: how(layers, real, steps))
        groups = HFEngine(model, {1}, 0, 64).generate(PROMPTS, SEEDS, sampling or Sampling(24))
    return [completion for group in groups for completion in group]


@pytest.mark.parametrize("products", [2**18, 1])
@pytest.mark.parametrize("kind", ["heads alone", "shared heads", "gpt2"])
def test_shared_prompts_write_what_own_prompts_write(kind, products, monkeypatch):
    monkeypatch.setattr("experiments.engines.caches.PRODUCTS", products)
    model = model_of(kind)
    own = written(model, OwnKeys, monkeypatch)
    shared = written(model, SharedKeys, monkeypatch)
    assert len({len(c.tokens) for c in own}) > 5  # rows have left the batch at many steps
    assert [c.tokens for c in shared] == [c.tokens for c in own]
    for a, b in zip(shared, own, strict=True):
        assert a.logps == pytest.approx(b.logps, abs=1e-4)
        assert a.entropy == pytest.approx(b.entropy, abs=1e-4)


def test_in_bfloat16_what_is_read_is_no_coarser_than_with_own_prompts(monkeypatch):
    model = model_of("shared heads")
    exact = written(model, OwnKeys, monkeypatch, Sampling(1))
    coarse = model.to(torch.bfloat16)
    found = [written(coarse, how, monkeypatch, Sampling(8)) for how in (OwnKeys, SharedKeys)]

    def off(completions):
        pairs = zip(completions, exact, strict=True)
        return max(abs(c.logps[0] - e.logps[0]) for c, e in pairs if c.tokens[0] == e.tokens[0])

    assert off(found[1]) <= off(found[0]) + 1e-6
    assert {c.logps for c in found[0]} != {c.logps for c in exact}


@pytest.mark.parametrize("kept", [list(range(27)), [0, 3, 8, 9, 20], [10, 11, 26], [9]])
def test_a_grid_gives_every_row_back(kept):
    held = SharedKeys(1, torch.ones(3, 2, dtype=torch.bool), 4)
    layer = held.cache.layers[0]
    layer.update(*torch.randn(2, 3, 1, 2, 4))
    prompt_of = torch.tensor([0] * 9 + [1] + [2] * 17)
    held.begin(prompt_of)
    before = layer.prompt_keys
    held.select(torch.tensor(kept))
    of_rows = torch.randn(len(kept), 5, 2, 3)
    grid = held.grid(of_rows)
    used = prompt_of[kept].unique()
    assert len(grid) == len(used)
    torch.testing.assert_close(layer.prompt_keys, before[used], rtol=0, atol=0)
    torch.testing.assert_close(held.rows(grid, 2), of_rows, rtol=0, atol=0)


def test_it_is_for_processors_and_for_models_that_take_another_attention(tiny):
    real = torch.ones(2, 3, dtype=torch.bool)
    assert isinstance(keys_for(tiny, real, 4), SharedKeys)
    assert isinstance(keys_for(tiny, real.to("meta"), 4), OwnKeys)
    tiny.config._attn_implementation = "eager"
    assert isinstance(keys_for(tiny, real, 4), OwnKeys)


def test_the_model_has_its_attention_back_whatever_comes(tiny, monkeypatch):
    before, seen = tiny.config._attn_implementation, []

    def broken(*_):
        seen.append(tiny.config._attn_implementation)
        raise ZeroDivisionError

    monkeypatch.setattr(hf, "draw", broken)
    with pytest.raises(ZeroDivisionError):
        HFEngine(tiny, {1}, 0, 64).generate(PROMPTS, SEEDS, Sampling(4))
    assert seen == [SHARED]
    assert tiny.config._attn_implementation == before
