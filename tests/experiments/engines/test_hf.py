"""Our sampling loop: the right tokens, from the right distribution, with the right log-probs."""

import math

import pytest
import torch

from experiments.engines import hf
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.kv_cache import OwnKeys
from experiments.engines.sampling import draw, nucleus
from experiments.engines.shared_keys import SharedKeys
from experiments.learner.forward import Tokens, score
from experiments.policy.policy import Policy

PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6]]
ONE = torch.tensor([0])  # the one response of the first row


@pytest.fixture
def engine(tiny):
    return HFEngine(Policy(tiny), eos={1}, pad=0, batch_size=64)


def flat(groups):
    return [completion for group in groups for completion in group]


def test_greedy_tokens_equal_those_of_generate(nano):
    from experiments.benchmarks.generate import same_greedy_tokens

    policy, tokenizer = nano
    engine = HFEngine(policy, {tokenizer.eos_token_id}, tokenizer.pad_token_id, 64)
    texts = ["sum of all", "read n", "count the letters of s that are vowels", "print"]
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True
        )["input_ids"]
        for text in texts
    ]
    assert same_greedy_tokens(engine, engine, prompts, 40) == 1.0


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_the_learners(engine, temperature):
    groups = engine.generate(Request(PROMPTS, [[1, 2, 3]] * 3, Sampling(12, temperature)))
    completions = flat(groups)
    tokens = Tokens.pack(
        PROMPTS,
        [0] * 3 + [1] * 3 + [2] * 3,
        [c.tokens for c in completions],
        0,
        torch.device("cpu"),
    )
    learner = score(engine.policy, tokens, temperature)
    own = score(engine.policy, tokens, 1.0)
    for row, completion in enumerate(completions):
        expected = learner.logp[row, : len(completion.tokens)]
        torch.testing.assert_close(torch.tensor(completion.logps), expected, rtol=0, atol=1e-4)
        entropy = own.entropy[row, : len(completion.tokens)].mean()
        assert completion.entropy == pytest.approx(entropy.item(), abs=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])  # the lower, the longer they are equal
def test_a_response_does_not_depend_on_its_neighbours(engine, temperature):
    sampling = Sampling(12, temperature)
    together = flat(engine.generate(Request(PROMPTS, [[10, 11], [12], [13, 14, 15]], sampling)))
    alone = [
        flat(engine.generate(Request([PROMPTS[p]], [[seed]], sampling)))[0]
        for p, seed in [(0, 10), (0, 11), (1, 12), (2, 13), (2, 14), (2, 15)]
    ]
    small = HFEngine(engine.policy, eos={1}, pad=0, batch_size=2)
    in_pairs = flat(small.generate(Request(PROMPTS, [[10, 11], [12], [13, 14, 15]], sampling)))
    assert [c.tokens for c in together] == [c.tokens for c in alone] == [c.tokens for c in in_pairs]


@pytest.mark.parametrize("how", [OwnKeys, SharedKeys])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_what_responses_have_in_common_is_read_once(engine, monkeypatch, how, temperature):
    layers, read = engine.model.config.num_hidden_layers, []
    monkeypatch.setattr(hf, "make_kv_cache", lambda _, real, steps: how(layers, real, steps))
    monkeypatch.setattr(hf, "COMPACT_BELOW", 1.0)  # what has ended leaves at once
    engine.model.register_forward_hook(
        lambda *given: read.append(given[2]["input_ids"].shape), with_kwargs=True
    )
    groups = engine.generate(
        Request(PROMPTS, [range(40), range(2), range(9)], Sampling(12, temperature))
    )
    begun = {
        (prompt, c.tokens[:length])  # each of them is read once, and the last token never
        for prompt, group in enumerate(groups)
        for c in group
        for length in range(1, len(c.tokens))
    }
    assert sum(rows for rows, width in read if width == 1) == len(begun)
    assert len(begun) < sum(len(c.tokens) - 1 for c in flat(groups))
    assert (len({c.tokens for c in groups[0]}) == 1) is (temperature == 0)


@pytest.mark.parametrize("batch_size", [4, 64])
def test_responses_are_handed_out_once_each_and_before_the_last_is_written(tiny, batch_size):
    engine = HFEngine(Policy(tiny), eos={1}, pad=0, batch_size=batch_size)
    seeds, pieces = [range(20), range(3), range(9)], []
    groups = engine.generate(Request(PROMPTS, seeds, Sampling(30)), pieces.append)
    handed = [written for piece in pieces for written in piece]
    assert len(handed) == len({(prompt, number) for prompt, number, _ in handed}) == 32
    assert all(groups[prompt][number] == completion for prompt, number, completion in handed)
    assert len(pieces) > (32 // batch_size or 1)  # some while others of their batch went on
    assert groups == engine.generate(Request(PROMPTS, seeds, Sampling(30)))


def test_different_seeds_give_different_responses(engine):
    drawn = {
        c.tokens for c in flat(engine.generate(Request(PROMPTS[:1], [range(20)], Sampling(12))))
    }
    assert len(drawn) > 10


def test_eos_ends_a_response_and_max_tokens_truncates(engine):
    completions = flat(engine.generate(Request(PROMPTS, [range(60)] * 3, Sampling(9))))
    ended = [c for c in completions if not c.truncated]
    assert ended
    assert all(c.tokens[-1] == 1 and 1 not in c.tokens[:-1] for c in ended)
    cut = [c for c in completions if c.truncated]
    assert cut
    assert all(len(c.tokens) == 9 and 1 not in c.tokens for c in cut)
    assert all(len(c.logps) == len(c.tokens) for c in completions)


def test_first_tokens_follow_the_models_distribution(engine):
    temperature, count = 2.0, 20_000
    seeds = [list(range(count))]
    big = HFEngine(engine.policy, eos={1}, pad=0, batch_size=count)
    first = [
        c.tokens[0]
        for c in flat(big.generate(Request(PROMPTS[:1], seeds, Sampling(1, temperature))))
    ]
    observed = torch.bincount(torch.tensor(first), minlength=41).double()
    logits = engine.model(torch.tensor(PROMPTS[:1])).logits[0, -1].detach().double()
    expected = (logits / temperature).softmax(-1) * count
    common = expected >= 5
    chi_square = ((observed - expected)[common] ** 2 / expected[common]).sum().item()
    degrees = int(common.sum())
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees)


def test_top_p_draws_from_the_renormalised_nucleus():
    probs = torch.tensor([0.5, 0.05, 0.3, 0.15])
    uniforms = torch.linspace(0, 0.9999, 1000)
    logits = probs.log().expand(1000, 4)
    token, logp, _ = draw(logits, torch.arange(1000), uniforms, Sampling(1, 1.0, 0.75))
    assert set(token.tolist()) == {0, 2}
    torch.testing.assert_close(logp.exp(), torch.where(token == 0, 0.625, 0.375))


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0, 2.0])
@pytest.mark.parametrize("top_p", [0.5, 1.0])
def test_the_entropy_is_the_policys_own_however_tokens_are_drawn(temperature, top_p):
    generator = torch.Generator().manual_seed(5)
    logits, uniforms = (torch.randn(3, 40, generator=generator) * 2, torch.rand(4))
    row_of = torch.tensor([2, 0, 1, 0])
    entropy = draw(logits, row_of, uniforms, Sampling(1, temperature, top_p))[2]
    probs = logits.double().softmax(-1)
    expected = -(probs * probs.log()).sum(-1)[row_of]
    torch.testing.assert_close(entropy.double(), expected, rtol=1e-5, atol=1e-6)


def test_the_first_token_of_the_nucleus_stays_however_small_top_p_is():
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    token, logp, _ = draw(logits, ONE, torch.tensor([0.999]), Sampling(1, 1.0, top_p=1e-6))
    assert token.item() == 1
    assert logp.item() == 0


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[0.0, -float("inf"), 0.0, -float("inf")]]).expand(3, 4)
    uniforms = torch.tensor([0.0, 0.5, 0.99999994])
    token, logp, entropy = draw(logits, torch.arange(3), uniforms, Sampling(1))
    assert token.tolist() == [0, 2, 2]
    assert torch.isfinite(logp).all()
    torch.testing.assert_close(entropy, torch.full((3,), math.log(2)))


def test_an_engine_with_its_own_copy_changes_only_at_sync(tiny):
    from experiments.policy.loading import frozen_copy

    policy = Policy(tiny)
    engine = HFEngine(frozen_copy(policy), eos={1}, pad=0, batch_size=8)
    before = flat(engine.generate(Request(PROMPTS, [[1]] * 3, Sampling(8))))
    with torch.no_grad():
        tiny.lm_head.weight.copy_(tiny.lm_head.weight.flip(0))
    policy.version += 1
    assert flat(engine.generate(Request(PROMPTS, [[1]] * 3, Sampling(8)))) == before
    engine.sync(policy)
    after = flat(engine.generate(Request(PROMPTS, [[1]] * 3, Sampling(8))))
    assert [c.tokens for c in after] != [c.tokens for c in before]
    assert {c.version for c in before} == {0}
    assert {c.version for c in after} == {1}


@pytest.mark.parametrize("spread", [0.0, 0.2, 1.0, 8.0])  # flat: many tokens make up the nucleus
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.95, 0.999])
def test_the_nucleus_is_that_of_all_tokens_in_order(spread, top_p):
    logits = torch.randn(40, 700, generator=torch.Generator().manual_seed(3)) * spread
    logps = logits.log_softmax(-1)
    kept, order = nucleus(logps, top_p)
    whole, places = logps.sort(-1, descending=True)
    probs = whole.exp()
    whole = whole.masked_fill(probs.cumsum(-1) - probs >= top_p, -torch.inf).log_softmax(-1)
    width = kept.shape[-1]
    assert whole[:, width:].isneginf().all()
    torch.testing.assert_close(kept, whole[:, :width], rtol=0, atol=1e-5)
    assert torch.equal(logps.gather(1, order), logps.gather(1, places[:, :width]))


def test_few_tokens_are_put_into_order_where_few_make_up_the_nucleus():
    logps = torch.arange(700.0).neg().log_softmax(-1).expand(3, 700)
    assert nucleus(logps, 0.95)[0].shape == (3, 16)
    flat_row = torch.zeros(1, 700).log_softmax(-1)
    assert nucleus(torch.cat([logps, flat_row]), 0.95)[0].shape == (4, 700)


def test_what_is_drawn_among_ties_does_not_depend_on_its_neighbours():
    generator = torch.Generator().manual_seed(0)
    flat_row = torch.zeros(1, 5000)  # for its sake more tokens are put into order
    for _ in range(100):
        row = (torch.randn(1, 5000, generator=generator) * 5).bfloat16().float()  # many are equal
        uniform = torch.rand(1, generator=generator)
        alone = draw(row, ONE, uniform, Sampling(1, 1.0, 0.95))[0]
        beside = draw(torch.cat([row, flat_row]), ONE, uniform, Sampling(1, 1.0, 0.95))[0]
        assert alone[0] == beside[0]
