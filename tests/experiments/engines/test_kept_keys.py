"""Conversations go on from kept keys and values: the same tokens and log-probs as read anew."""

from functools import partial

import pytest
import torch

from experiments.engines import hf
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.kept_keys import KeptKeys, in_columns
from experiments.engines.kv_cache import OwnKeys
from experiments.engines.shared_keys import SharedKeys
from experiments.policy.policy import Policy
from tests.experiments.kinds import SLIDING, model_of, plain_logp

PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6], [4]]
GROUPS = [5, 1, 8, 0]  # conversations on each
TURNS, ANSWER = 3, 10  # answers; tokens of each at most


def observed(turn, prompt, number):
    return [20 + turn, 33, 5 + number][: 1 + (prompt + number) % 3]


def goes_on(turn, prompt, number):
    return (number + prompt) % 4 > turn


def converse(engine, keep, forget=False, temperature=1.0):
    """(context, answer) of every answer; conversations end at different turns."""
    going = [[(number, []) for number in range(count)] for count in GROUPS]
    found = []
    for turn in range(TURNS):
        answers = engine.generate(
            Request(
                PROMPTS,
                [[100 * i + 10 * number + turn for number, _ in g] for i, g in enumerate(going)],
                Sampling(ANSWER, temperature),
                begun=[[tokens for _, tokens in group] for group in going] if turn else None,
                keep=keep and turn + 1 < TURNS,
            )
        )
        if forget:
            engine.release_memory()
        further = []
        for i, (group, of_prompt) in enumerate(zip(going, answers, strict=True)):
            further.append([])
            for (number, begun), answer in zip(group, of_prompt, strict=True):
                found.append(([*PROMPTS[i], *begun], answer))
                if goes_on(turn, i, number):
                    tokens = [*begun, *answer.tokens, *observed(turn, i, number)]
                    further[-1].append((number, tokens))
        going = further
    return found


def columns_read(model):
    """The (rows, columns) of every pass of the model from now on."""
    read = []
    model.register_forward_hook(
        lambda *given: read.append(tuple(given[2]["input_ids"].shape)), with_kwargs=True
    )
    return read


def engine_of(model, batch_size=64):
    return HFEngine(Policy(model), {1}, 0, batch_size)


@pytest.mark.parametrize("batch_size", [64, 4])
@pytest.mark.parametrize("how", [OwnKeys, SharedKeys])
@pytest.mark.parametrize("temperature", [1.0, 0.3])  # the lower, the more answers are equal
def test_log_probs_are_those_of_contexts_read_anew(tiny, how, batch_size, temperature, monkeypatch):
    layers = tiny.config.num_hidden_layers
    monkeypatch.setattr(hf, "make_kv_cache", lambda _, real, steps: how(layers, real, steps))
    engine = engine_of(tiny, batch_size)
    kept = converse(engine, True, temperature=temperature)
    anew = converse(engine, False, temperature=temperature)
    assert len(kept) == len(anew) > 20
    assert [(context, a.tokens) for context, a in kept] == [(c, a.tokens) for c, a in anew]
    for (context, answer), (_, other) in zip(kept, anew, strict=True):
        assert answer.logps == pytest.approx(other.logps, abs=1e-5)
        if temperature == 1:
            with torch.no_grad():
                plain = plain_logp(tiny, context, answer.tokens)
            assert answer.logps == pytest.approx(plain.tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", sorted(SLIDING))
def test_a_sliding_window_is_the_models_own(kind):
    model = model_of(kind, **SLIDING[kind])
    for context, answer in converse(engine_of(model), True):
        with torch.no_grad():
            expected = plain_logp(model, context, answer.tokens)
        assert answer.logps == pytest.approx(expected.tolist(), abs=1e-4)


def test_only_what_is_new_is_read(tiny):
    """The last token of an answer, and at most three of an observation."""
    read, begins = columns_read(tiny), []
    for keep in (True, False):
        read.clear()
        converse(engine_of(tiny), keep)
        begins.append([width for _, width in read if width > 1])
    assert len(begins[0]) == TURNS
    assert begins[0][1:] == [4, 4]
    assert begins[1][1] > 7 and begins[1][2] > 14


def test_one_answer_has_the_same_bits_whether_it_is_kept_or_not(tiny):
    engine = engine_of(tiny, 4)
    seeds = [range(count) for count in GROUPS]
    plain = engine.generate(Request(PROMPTS, seeds, Sampling(ANSWER)))
    assert engine.generate(Request(PROMPTS, seeds, Sampling(ANSWER), keep=True)) == plain
    blank = [[()] * count for count in GROUPS]
    assert engine.generate(Request(PROMPTS, seeds, Sampling(ANSWER), begun=blank)) == plain


def test_it_is_made_again_to_the_same_bits(tiny):
    assert converse(engine_of(tiny, 4), True) == converse(engine_of(tiny, 4), True)


def test_what_was_released_is_read_anew(tiny):
    tokens = [[a.tokens for _, a in converse(engine_of(tiny), True, forget)] for forget in (0, 1)]
    assert tokens[0] == tokens[1]


def test_nothing_is_kept_in_the_end_and_nothing_of_what_ended(tiny):
    engine = engine_of(tiny)
    go = partial(engine.generate, PROMPTS, sampling=Sampling(ANSWER))
    first = go([range(3)] * 4, keep=True)
    assert len(engine._kept) == len({(i, c.tokens) for i, g in enumerate(first) for c in g})
    begun = [[], [[*first[1][0].tokens, 7]], [], []]
    (answer,) = go([[], [9], [], []], begun=begun, keep=True)[1]
    assert len(engine._kept) == 1
    assert engine._kept.take(PROMPTS, [[], [(*begun[1][0], *answer.tokens, 5)], [], []])
    assert len(engine._kept) == 0
    converse(engine, True)
    assert len(engine._kept) == 0


def test_equal_contexts_are_read_once(tiny):
    engine, read = engine_of(tiny), columns_read(tiny)
    begun = [[(7, 8, 9)] * 6]
    engine.generate(Request(PROMPTS[:1], [range(6)], Sampling(ANSWER), begun=begun))
    assert read[0] == (1, len(PROMPTS[0]) + 3)


def test_it_is_found_by_its_tokens():
    kept = KeptKeys()
    short, long = torch.zeros(2, 1, 4, 3), torch.ones(2, 1, 6, 3)
    kept.add([1, 2], (3, 4, 5), short)
    kept.add([1, 2], (3, 4, 5, 6, 7), long)
    kept.add([1], (3, 4), short)
    found = kept.take([[1, 2], [9]], [[(3, 4, 5, 6, 7, 8), (3, 4, 5, 0), (3, 4, 0)], [(3, 4, 5)]])
    assert found == {(0, (3, 4, 5, 6, 7, 8)): long, (0, (3, 4, 5, 0)): short}
    assert len(kept) == 1  # of another prompt


def test_columns_end_where_the_first_context_has_to_be_read():
    states = torch.arange(1.0, 6).view(1, 1, 5, 1)
    # of 8 columns 3 are read: the first context has 7 tokens, of which 5 are kept
    found = in_columns([7, 8, 2], [states, states, None])
    assert found[0, :, 0, :, 0].tolist() == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0] * 5]
    assert in_columns([7, 8], [states, None]) is None
    assert in_columns([7, 8], [None, None]) is None
