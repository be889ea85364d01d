"""Prompts held once for all their responses, and kept over turns: the tokens of plain passes."""

import pytest
import torch

from experiments.engines import hf, kv_cache, open_engines
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.kv_cache import (
    SHARED,
    KeptKeys,
    OwnKeys,
    SharedKeys,
    StaticKeys,
    in_columns,
    make_kv_cache,
)
from experiments.errors import UserError
from experiments.policy.patches import MODEL_TYPES
from experiments.policy.policy import Policy
from tests.experiments.compose import config
from tests.experiments.kinds import SLIDING, WINDOW, model_of, plain_logp

PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6], [4], [9, 31, 9]]
SEEDS = [range(9), range(100, 101), range(200, 217), [], range(300, 302)]  # of different sizes
TURNS, ANSWER = 3, 10  # answers of a conversation; tokens of each at most


def engine_of(model, batch_size=64, how=SharedKeys):
    return HFEngine(Policy(model), {1}, 0, batch_size, how is StaticKeys)


def use(how, model, patch):
    """Have caches made of this kind, the fixed ones in steps of few rows and columns."""
    layers = model.config.num_hidden_layers
    own = OwnKeys if how is StaticKeys else how
    patch.setattr(hf, "make_kv_cache", lambda _, mask, steps, __: own(layers, mask, steps))
    patch.setattr(kv_cache, "ROWS", 2)
    patch.setattr(kv_cache, "COLUMNS", 8)


def generated(model, how, monkeypatch, steps=24):
    with monkeypatch.context() as patch:
        use(how, model, patch)
        groups = engine_of(model, how=how).generate(Request(PROMPTS, SEEDS, Sampling(steps)))
    return [completion for group in groups for completion in group]


def assert_same(shared, own):
    assert [c.tokens for c in shared] == [c.tokens for c in own]
    for a, b in zip(shared, own, strict=True):
        assert a.logps == pytest.approx(b.logps, abs=1e-4)
        assert a.entropy == pytest.approx(b.entropy, abs=1e-4)


@pytest.mark.parametrize("kind", sorted(MODEL_TYPES))
def test_shared_prompts_and_fixed_steps_generate_what_own_prompts_generate(kind, monkeypatch):
    model = model_of(kind, **{"attention_multiplier": 0.3} if kind == "granite" else {})
    own = generated(model, OwnKeys, monkeypatch)
    assert len({len(c.tokens) for c in own}) > 3  # rows have left the batch at several steps
    for how in (SharedKeys, StaticKeys):
        assert_same(generated(model, how, monkeypatch), own)


def test_fixed_steps_have_few_sizes_and_one_address_each(nano, monkeypatch):
    """What a CUDA graph needs: it reads and writes where it did when it was captured."""
    policy, tokenizer = nano
    texts, ends = ("Read n. Print n.", "Print 1.", "Add a to b. " * 9), {tokenizer.eos_token_id}
    prompts = [tokenizer(text).input_ids for text in texts]
    request = Request(prompts, [range(9), range(20, 57), range(60, 61)], Sampling(40))
    engines = [HFEngine(policy, ends, 0, 16, static) for static in (False, True)]
    monkeypatch.setattr(kv_cache, "ROWS", 2)
    monkeypatch.setattr(kv_cache, "COLUMNS", 32)
    plain, places = engines[0].generate(request), {}

    def see(module, _, given):
        if given["input_ids"].shape[1] == 1:
            layer, mask = given["past_key_values"].layers[0], given["attention_mask"]
            read = [mask, given["input_ids"], given["position_ids"]]
            read += [layer.keys, layer.values, layer.at]
            size = len(mask), mask.shape[-1]
            places.setdefault(size, set()).add(tuple(tensor.data_ptr() for tensor in read))

    hook = policy.model.register_forward_pre_hook(see, with_kwargs=True)
    fixed = engines[1].generate(request)
    hook.remove()
    for of_plain, of_fixed in zip(plain, fixed, strict=True):
        assert_same(of_fixed, of_plain)
    assert {rows for rows, _ in places} <= {2, 4, 8, 16} and len({at for _, at in places}) > 1
    assert [len(addresses) for addresses in places.values()] == [1] * len(places)


def test_a_model_whose_step_is_not_fixed_is_refused(nano):
    policy = Policy(model_of("mistral", **SLIDING["mistral"]))
    with pytest.raises(UserError, match=r"engine\.static_cache=true"):
        open_engines(config("engine.static_cache=true"), policy, nano[1])
    assert open_engines(config("engine.static_cache=true"), *nano)(nano[0]).static_cache


@pytest.mark.parametrize(("name", "value"), [("PRODUCTS", 1), ("COMPACT_BELOW", 0.9999)])
def test_neither_chunks_nor_early_compaction_change_a_token(name, value, monkeypatch):
    model = model_of("qwen2")
    own = generated(model, OwnKeys, monkeypatch)
    module = hf if name == "COMPACT_BELOW" else "experiments.engines.kv_cache"
    monkeypatch.setattr(*((module, name) if module is hf else (f"{module}.{name}",)), value)
    assert_same(generated(model, SharedKeys, monkeypatch), own)


@pytest.mark.parametrize("kind", sorted(SLIDING))
def test_a_sliding_window_is_the_models_own(kind):
    """Log-probs are those of a plain forward pass, of responses that end far beyond the window."""
    model = model_of(kind, **SLIDING[kind])
    groups = engine_of(model).generate(Request(PROMPTS, [range(6)] * 5, Sampling(24)))
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for completion in group:
            with torch.no_grad():
                expected = plain_logp(model, prompt, completion.tokens)
            assert completion.logps == pytest.approx(expected.tolist(), abs=1e-4)
    assert max(len(completion.tokens) for group in groups for completion in group) > 3 * WINDOW


def test_shared_keys_are_for_cpus_and_for_models_that_take_another_attention(tiny):
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert isinstance(make_kv_cache(tiny, mask, 4), SharedKeys)
    assert isinstance(make_kv_cache(tiny, mask.to("meta"), 4), OwnKeys)
    tiny.config._attn_implementation = "eager"
    assert isinstance(make_kv_cache(tiny, mask, 4), OwnKeys)


def test_the_model_has_its_attention_back_after_an_error(tiny, monkeypatch):
    before, seen = tiny.config._attn_implementation, []

    def broken(*_):
        seen.append(tiny.config._attn_implementation)
        raise ZeroDivisionError

    monkeypatch.setattr(hf, "draw", broken)
    with pytest.raises(ZeroDivisionError):
        engine_of(tiny).generate(Request(PROMPTS, SEEDS, Sampling(4)))
    assert (seen, tiny.config._attn_implementation) == ([SHARED], before)


# Conversations


def converse(engine, keep, release=False, temperature=1.0):
    """Return (context, answer) of every answer; conversations end at different turns."""
    ongoing = [[(number, []) for number in range(count)] for count in (5, 1, 8, 0, 2)]
    found = []
    for turn in range(TURNS):
        seeds = [[100 * i + 10 * number + turn for number, _ in g] for i, g in enumerate(ongoing)]
        begun = [[tokens for _, tokens in group] for group in ongoing] if turn else None
        sampling = Sampling(ANSWER, temperature)
        request = Request(PROMPTS, seeds, sampling, begun, keep and turn + 1 < TURNS)
        answers = engine.generate(request)
        if release:
            engine.release_memory()
        further = [[] for _ in PROMPTS]
        for i, (group, of_prompt) in enumerate(zip(ongoing, answers, strict=True)):
            for (number, before), answer in zip(group, of_prompt, strict=True):
                found.append(([*PROMPTS[i], *before], answer))
                if (number + i) % 4 > turn:
                    observation = [20 + turn, 33, 5 + number][: 1 + (i + number) % 3]
                    further[i].append((number, [*before, *answer.tokens, *observation]))
        ongoing = further
    return found


@pytest.mark.parametrize("batch_size", [64, 4])
@pytest.mark.parametrize("how", [OwnKeys, SharedKeys, StaticKeys])
@pytest.mark.parametrize("temperature", [1.0, 0.3])  # the lower, the more answers are equal
def test_answers_from_kept_keys_are_those_of_contexts_read_anew(
    tiny, how, batch_size, temperature, monkeypatch
):
    use(how, tiny, monkeypatch)
    engine = engine_of(tiny, batch_size, how)
    kept, anew, released = (
        converse(engine, keep, release, temperature)
        for keep, release in ((True, False), (False, False), (True, True))
    )
    assert not engine._kept._kept  # nothing of conversations that have ended
    assert kept == converse(engine, True, temperature=temperature)  # to the bit
    assert [(context, a.tokens) for context, a in kept] == [(c, a.tokens) for c, a in anew]
    assert [a.tokens for _, a in released] == [a.tokens for _, a in anew]
    for (_, answer), (_, other) in zip(kept, anew, strict=True):
        assert answer.logps == pytest.approx(other.logps, abs=1e-5)


def test_only_new_columns_are_read(tiny):
    """The last token of an answer, and at most three of an observation."""
    widths = []
    tiny.register_forward_hook(
        lambda *given: widths.append(given[2]["input_ids"].shape[1]), with_kwargs=True
    )
    converse(engine_of(tiny), True)
    assert [width for width in widths if width > 1][1:] == [4, 4]


# Continuations of a response from several of its tokens


@pytest.mark.parametrize("batch_size", [64, 4])
@pytest.mark.parametrize("how", [OwnKeys, SharedKeys, StaticKeys])
def test_a_response_continued_with_its_own_numbers_is_the_same_and_its_tokens_are_read_once(
    tiny, how, batch_size, monkeypatch
):
    use(how, tiny, monkeypatch)
    engine, sampling, read = engine_of(tiny, batch_size, how), Sampling(12, 0.7), []
    whole = engine.generate(Request(PROMPTS, SEEDS, sampling))
    pairs = [list(zip(*group, strict=True)) for group in zip(SEEDS, whole, strict=True)]
    cuts = [[(s, c, t) for s, c in group for t in range(len(c.tokens))] for group in pairs]
    seeds = [[s for s, _, _ in group] for group in cuts]
    begun = [[c.tokens[:t] for _, c, t in group] for group in cuts]

    def count(_, __, given):
        if given["input_ids"].shape[1] > 1:
            read.append(int(given["attention_mask"].sum()))

    hook = tiny.register_forward_pre_hook(count, with_kwargs=True)
    found = engine.generate(Request(PROMPTS, seeds, sampling, begun, continues=True))
    hook.remove()
    for group, ends in zip(cuts, found, strict=True):
        for (_, response, t), end in zip(group, ends, strict=True):
            assert (end.tokens, end.truncated) == (response.tokens[t:], response.truncated)
            assert end.logps == pytest.approx(response.logps[t:], abs=1e-4)
    texts = {(i, c.tokens[:-1]) for i, group in enumerate(whole) for c in group}
    part = {(i, t[:n]) for i, t in texts for n in range(len(t))}  # of a longer one
    assert sum(read) == sum(len(PROMPTS[i]) + len(tokens) for i, tokens in texts - part)


def test_keys_are_found_by_their_tokens():
    kept = KeptKeys()
    short, long = torch.zeros(2, 1, 4, 3), torch.ones(2, 1, 6, 3)
    kept.add([1, 2], (3, 4, 5), short)
    kept.add([1, 2], (3, 4, 5, 6, 7), long)
    kept.add([1], (3, 4), short)
    found = kept.take([[1, 2], [9]], [[(3, 4, 5, 6, 7, 8), (3, 4, 5, 0), (3, 4, 0)], [(3, 4, 5)]])
    assert found == {(0, (3, 4, 5, 6, 7, 8)): long, (0, (3, 4, 5, 0)): short}
    assert kept._kept == {(1,): {(3, 4): short}}  # of another prompt


def test_columns_end_where_the_first_context_has_to_be_read():
    states = torch.arange(1.0, 6).view(1, 1, 5, 1)
    # of 8 columns 3 are read: the first context has 7 tokens, of which 5 are kept
    found = in_columns([7, 8, 2], [states, states, None])
    assert found[0, :, 0, :, 0].tolist() == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0] * 5]
    assert in_columns([7, 8], [states, None]) is None
