"""Prompts that are held once for all their responses: the tokens and log-probs of rows that each
hold their own."""

import pytest
import torch

from experiments.engines import hf
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.kv_cache import OwnKeys
from experiments.engines.shared_keys import SHARED, SharedKeys, make_kv_cache
from experiments.policy.attention_override import MODEL_TYPES
from experiments.policy.policy import Policy
from tests.experiments.kinds import SLIDING, WINDOW, model_of, plain_logp

PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6], [4], [9, 31, 9]]
SEEDS = [range(9), range(100, 101), range(200, 217), [], range(300, 302)]  # of different sizes


def written(model, how, monkeypatch, sampling):
    layers = model.config.num_hidden_layers
    with monkeypatch.context() as patch:
        patch.setattr(hf, "make_kv_cache", lambda _, real, steps: how(layers, real, steps))
        groups = HFEngine(Policy(model), {1}, 0, 64).generate(Request(PROMPTS, SEEDS, sampling))
    return [completion for group in groups for completion in group]


def same(shared, own):
    assert [c.tokens for c in shared] == [c.tokens for c in own]
    for a, b in zip(shared, own, strict=True):
        assert a.logps == pytest.approx(b.logps, abs=1e-4)
        assert a.entropy == pytest.approx(b.entropy, abs=1e-4)


@pytest.mark.parametrize("kind", sorted(MODEL_TYPES))
def test_shared_prompts_write_what_own_prompts_write(kind, monkeypatch):
    model = model_of(kind, **{"attention_multiplier": 0.3} if kind == "granite" else {})
    own, shared = (written(model, how, monkeypatch, Sampling(24)) for how in (OwnKeys, SharedKeys))
    assert len({len(c.tokens) for c in own}) > 3  # rows have left the batch at several steps
    same(shared, own)


@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS[:1]], ids=["padded", "no padding"])
@pytest.mark.parametrize("kind", sorted(SLIDING))
def test_a_sliding_window_is_the_models_own(kind, prompts):
    """Log-probs are those of a plain forward pass, of responses that end far beyond the window."""
    model, seeds = model_of(kind, **SLIDING[kind]), [range(6)] * len(prompts)
    groups = HFEngine(Policy(model), {1}, 0, 64).generate(Request(prompts, seeds, Sampling(24)))
    for prompt, group in zip(prompts, groups, strict=True):
        for completion in group:
            with torch.no_grad():
                expected = plain_logp(model, prompt, completion.tokens)
            assert completion.logps == pytest.approx(expected.tolist(), abs=1e-4)
    assert max(len(completion.tokens) for group in groups for completion in group) > 3 * WINDOW


def test_they_do_however_few_products_are_held_at_once(monkeypatch):
    model = model_of("qwen2")
    own = written(model, OwnKeys, monkeypatch, Sampling(24))
    monkeypatch.setattr("experiments.engines.shared_keys.PRODUCTS", 1)
    same(written(model, SharedKeys, monkeypatch, Sampling(24)), own)


def test_a_prompt_whose_rows_have_all_ended_is_dropped(monkeypatch):
    monkeypatch.setattr(hf, "COMPACT_BELOW", 0.9999)
    model, held = model_of("llama"), []

    class Seen(SharedKeys):
        def select(self, rows, max_rows):
            super().select(rows, max_rows)
            held.append(len(self.bias))

    own = written(model, OwnKeys, monkeypatch, Sampling(60))
    same(written(model, Seen, monkeypatch, Sampling(60)), own)
    assert set(held) == {3, 4}  # of the four that have any


def test_in_bfloat16_what_is_read_is_no_coarser_than_with_own_prompts(monkeypatch):
    model, sampling = model_of("qwen2"), Sampling(2)  # the second token is the first that attends
    exact = written(model, OwnKeys, monkeypatch, sampling)
    coarse = model.to(torch.bfloat16)

    def off(how):
        pairs = zip(written(coarse, how, monkeypatch, sampling), exact, strict=True)
        found = [c.logps[1] - e.logps[1] for c, e in pairs if c.tokens == e.tokens and c.logps[1:]]
        assert len(found) > 15
        return sum(map(abs, found)) / len(found)

    of_own, of_shared = off(OwnKeys), off(SharedKeys)
    assert 0 < of_shared < 1.2 * of_own < 0.1


@pytest.mark.parametrize("kept", [list(range(27)), [0, 3, 8, 9, 20], [10, 11, 26], [9]])
def test_a_grid_gives_every_row_back(kept):
    real = torch.tensor([[False, True], [True, True], [False, True]])
    held = SharedKeys(1, real, 4)
    layer = held.cache.layers[0]
    layer.update(*torch.randn(2, 3, 1, 2, 4))
    held.begin(27)
    held.branch(torch.tensor([0] * 8 + [2] * 16))
    prompt_of = held.prompt_of
    assert prompt_of.bincount().tolist() == [9, 1, 17]
    keys, hidden = layer.prompt_keys, held.bias
    held.select(torch.tensor(kept), len(kept))
    of_rows = torch.randn(len(kept), 5, 2, 3)
    grid = held.to_grid(of_rows)
    used = prompt_of[kept].unique()
    assert len(grid) == len(used)
    assert torch.equal(layer.prompt_keys, keys[used])
    assert torch.equal(held.bias, hidden[used])
    assert torch.equal(held.from_grid(grid, 2), of_rows)


def test_it_is_for_processors_and_for_models_that_take_another_attention(tiny):
    real = torch.ones(2, 3, dtype=torch.bool)
    assert isinstance(make_kv_cache(tiny, real, 4), SharedKeys)
    assert isinstance(make_kv_cache(tiny, real.to("meta"), 4), OwnKeys)
    tiny.config._attn_implementation = "eager"
    assert isinstance(make_kv_cache(tiny, real, 4), OwnKeys)


def test_the_model_has_its_attention_back_whatever_comes(tiny, monkeypatch):
    before, seen = tiny.config._attn_implementation, []

    def broken(*_):
        seen.append(tiny.config._attn_implementation)
        raise ZeroDivisionError

    monkeypatch.setattr(hf, "draw", broken)
    with pytest.raises(ZeroDivisionError):
        HFEngine(Policy(tiny), {1}, 0, 64).generate(Request(PROMPTS, SEEDS, Sampling(4)))
    assert seen == [SHARED]
    assert tiny.config._attn_implementation == before
