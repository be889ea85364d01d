"""Our sampling loop: the right tokens, from the right distribution, with the right log-probs."""

import math

import pytest
import torch

from experiments.engines.base import Request, Sampling, draw, nucleus
from experiments.engines.hf import HFEngine
from experiments.learner.batching import Tokens
from experiments.learner.forward import score
from experiments.policy.policy import Policy, frozen_copy

PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6]]
SEEDS = [[10, 11], [12], [13, 14, 15]]
ONE = torch.tensor([0])  # the one response of the first row


@pytest.fixture
def engine(tiny):
    return HFEngine(Policy(tiny), eos={1}, pad=0, batch_size=64)


def generate(engine, prompts, seeds, *sampling):
    groups = engine.generate(Request(prompts, seeds, Sampling(*sampling)))
    return [completion for group in groups for completion in group]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_and_entropies_are_the_learners(engine, temperature):
    completions = generate(engine, PROMPTS, [[1, 2, 3]] * 3, 12, temperature)
    rows, responses = [i // 3 for i in range(9)], [c.tokens for c in completions]
    tokens = Tokens.pack(PROMPTS, rows, responses, 0, torch.device("cpu"))
    learner, own = (score(engine.policy, tokens, at) for at in (temperature, 1.0))
    for row, completion in enumerate(completions):
        length = len(completion.tokens)
        expected = learner.logp[row, :length]
        torch.testing.assert_close(torch.tensor(completion.logps), expected, rtol=0, atol=1e-4)
        entropy = own.entropy[row, :length].mean()
        assert completion.entropy == pytest.approx(entropy.item(), abs=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])  # the lower, the longer they are equal
def test_a_response_does_not_depend_on_its_neighbours(engine, temperature):
    pairs = [(p, seed) for p, group in enumerate(SEEDS) for seed in group]
    alone = [generate(engine, [PROMPTS[p]], [[s]], 12, temperature)[0] for p, s in pairs]
    small = HFEngine(engine.policy, eos={1}, pad=0, batch_size=2)
    for other in (engine, small):
        together = generate(other, PROMPTS, SEEDS, 12, temperature)
        assert [c.tokens for c in together] == [c.tokens for c in alone]


@pytest.mark.parametrize("batch_size", [4, 64])
def test_responses_are_handed_out_once_each_while_others_are_generated(tiny, batch_size):
    engine = HFEngine(Policy(tiny), eos={1}, pad=0, batch_size=batch_size)
    pieces, seeds = [], [range(20), range(3), range(9)]
    groups = engine.generate(Request(PROMPTS, seeds, Sampling(30)), pieces.append)
    handed = [one for piece in pieces for one in piece]
    assert len({(prompt, number) for prompt, number, _ in handed}) == len(handed) == 32
    assert all(groups[prompt][number] == completion for prompt, number, completion in handed)
    assert len(pieces) > (32 // batch_size or 1)


def test_eos_ends_a_response_and_max_tokens_truncates(engine):
    completions = generate(engine, PROMPTS, [range(60)] * 3, 9)
    ended, cut = ([c for c in completions if c.truncated is t] for t in (False, True))
    assert ended and cut
    assert all(c.tokens[-1] == 1 and 1 not in c.tokens[:-1] for c in ended)
    assert all(len(c.tokens) == 9 and 1 not in c.tokens for c in cut)
    assert all(len(c.logps) == len(c.tokens) for c in completions)


def test_first_tokens_follow_the_models_distribution(engine):
    temperature, count = 2.0, 20_000
    big = HFEngine(engine.policy, eos={1}, pad=0, batch_size=count)
    first = [c.tokens[0] for c in generate(big, PROMPTS[:1], [range(count)], 1, temperature)]
    observed = torch.bincount(torch.tensor(first), minlength=41).double()
    logits = engine.model(torch.tensor(PROMPTS[:1])).logits[0, -1].detach().double()
    expected = (logits / temperature).softmax(-1) * count
    common = expected >= 5
    chi_square = ((observed - expected)[common] ** 2 / expected[common]).sum().item()
    degrees = int(common.sum())
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees)


def test_an_engine_with_its_own_copy_changes_only_at_sync(tiny):
    policy = Policy(tiny)
    engine = HFEngine(frozen_copy(policy), eos={1}, pad=0, batch_size=8)
    before = generate(engine, PROMPTS, [[1]] * 3, 8)
    with torch.no_grad():
        tiny.lm_head.weight.copy_(tiny.lm_head.weight.flip(0))
    policy.version += 1
    assert generate(engine, PROMPTS, [[1]] * 3, 8) == before
    engine.sync(policy)
    after = generate(engine, PROMPTS, [[1]] * 3, 8)
    assert [c.tokens for c in after] != [c.tokens for c in before]
    assert ({c.version for c in before}, {c.version for c in after}) == ({0}, {1})


def test_top_p_draws_from_the_renormalised_nucleus():
    logits = torch.tensor([0.5, 0.05, 0.3, 0.15]).log().expand(1000, 4)
    uniforms = torch.linspace(0, 0.9999, 1000)
    token, logp, _ = draw(logits, torch.arange(1000), uniforms, Sampling(1, 1.0, 0.75))
    assert set(token.tolist()) == {0, 2}
    torch.testing.assert_close(logp.exp(), torch.where(token == 0, 0.625, 0.375))
    token, logp, _ = draw(logits[:1], ONE, uniforms[-1:], Sampling(1, 1.0, top_p=1e-6))
    assert (token.item(), logp.item()) == (0, 0)  # the first token always stays


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 1.0), (0.4, 0.5), (2.0, 1.0)])
def test_the_entropy_is_the_policys_own_however_tokens_are_drawn(temperature, top_p):
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(5)) * 2
    row_of = torch.tensor([2, 0, 1, 0])
    entropy = draw(logits, row_of, torch.rand(4), Sampling(1, temperature, top_p))[2]
    probs = logits.double().softmax(-1)
    expected = -(probs * probs.log()).sum(-1)[row_of]
    torch.testing.assert_close(entropy.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, 4)
    token, logp, entropy = draw(
        logits, torch.arange(3), torch.tensor([0.0, 0.5, 0.99999994]), Sampling(1)
    )
    assert token.tolist() == [0, 2, 2] and torch.isfinite(logp).all()
    torch.testing.assert_close(entropy, torch.full((3,), math.log(2)))


@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0])  # flat: many tokens make up the nucleus
@pytest.mark.parametrize("top_p", [0.05, 0.95, 0.999])
def test_the_nucleus_is_that_of_all_tokens_in_order(spread, top_p):
    logits = torch.randn(40, 700, generator=torch.Generator().manual_seed(3)) * spread
    logps = logits.log_softmax(-1)
    kept, order = nucleus(logps, top_p)
    whole, places = logps.sort(-1, descending=True)
    probs, width = whole.exp(), kept.shape[-1]
    whole = whole.masked_fill(probs.cumsum(-1) - probs >= top_p, -torch.inf).log_softmax(-1)
    assert whole[:, width:].isneginf().all()
    torch.testing.assert_close(kept, whole[:, :width], rtol=0, atol=1e-5)
    assert torch.equal(logps.gather(1, order), logps.gather(1, places[:, :width]))


def test_what_is_drawn_among_ties_does_not_depend_on_its_neighbours():
    generator = torch.Generator().manual_seed(0)
    flat_row = torch.zeros(1, 5000)  # for its sake more tokens are put into order
    for _ in range(100):
        row = (torch.randn(1, 5000, generator=generator) * 5).bfloat16().float()  # many are equal
        uniform = torch.rand(1, generator=generator)
        alone = draw(row, ONE, uniform, Sampling(1, 1.0, 0.95))[0]
        beside = draw(torch.cat([row, flat_row]), ONE, uniform, Sampling(1, 1.0, 0.95))[0]
        assert alone[0] == beside[0]
