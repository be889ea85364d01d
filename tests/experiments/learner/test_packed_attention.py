"""Passes without padding give what passes over padded rows give, and read no token of it, and what
responses to a prompt share once."""

from functools import partial

import pytest
import torch

from experiments.learner import forward, packed_attention
from experiments.learner.batching import Tokens
from experiments.learner.forward import Critic, scalar_head, score
from experiments.learner.packed_attention import can_pack
from experiments.policy import loading
from experiments.policy.attention_override import MODEL_TYPES
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy
from tests.compose import model_config
from tests.experiments.kinds import model_of

PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6], [9, 9, 31]]
RESPONSES = [[5, 6, 1], [9], [4, 4, 4, 8, 1], [3, 1], [30, 31, 22, 7, 7, 1], [8], [2, 1]]
RAGGED = (PROMPTS, [0, 0, 1, 2, 2, 3, 0], RESPONSES)  # a prompt's rows need not be neighbours
# Two that are equal; ones that end where others go on, the padding's id among what follows; a row
# that shares with one what that shares with another; the same after other prompts.
LONG, OTHER = [5, 0, 0, 7, 1], [5, 0, 3]
ALIKE = [LONG, [5], [5, 0], LONG, OTHER, [5, 0, 3, 2], OTHER, [5, 0, 0]]
SHARING = (PROMPTS, [0, 0, 0, 0, 1, 0, 0, 3], ALIKE)
BATCHES = {
    "ragged": RAGGED,
    "sharing": SHARING,
    "one prompt": (PROMPTS[2:3], [0] * 7, RESPONSES),
    "shortest": ([[2, 5]], [0], [[9]]),
    "no padding": (PROMPTS[:1], [0, 0], [[5, 6, 1], [4, 8, 1]]),
}


def tokens_of(batch):
    return Tokens.pack(*batch, 0, torch.device("cpu"))


def policy_of(kind, **options):
    return Policy(model_of(kind, **options))


@pytest.fixture(scope="module")
def bundled():
    return loading.load(model_config())[0]


@pytest.fixture
def padded(monkeypatch):
    """A function that scores over padded rows."""

    def of(function, *args):
        with monkeypatch.context() as patch:
            patch.setattr(forward, "can_pack", lambda _: False)
            return function(*args)

    return of


def outcome(policy, tokens):
    """Log-probs, entropies and values, (batch, time), and the gradient of a sum of them."""
    model = policy.model
    model.zero_grad()
    head = scalar_head(policy)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=generator))
    output = score(policy, tokens, 0.7, head, "graph")
    found = [output.logp, output.entropy, output.values.masked_fill(~tokens.mask, 0.0)]
    sum((x * torch.randn(x.shape, generator=generator)).sum() for x in found).backward()
    trained = dict(model.named_parameters()) | dict(head.named_parameters(prefix="value_head"))
    gradients = {n: p.grad.clone() for n, p in trained.items() if p.grad is not None}
    return [x.detach() for x in found], gradients


def same(one, other, value=1e-6, gradient=1e-5):
    """To `value` and `gradient` of the largest number in each tensor."""
    (found, gradients), (expected, wanted) = one, other
    assert gradients.keys() == wanted.keys()
    pairs = [*zip(found, expected, strict=True)]
    limits = [value] * len(pairs) + [gradient] * len(wanted)
    pairs += [(gradients[name], wanted[name]) for name in wanted]
    for (a, b), limit in zip(pairs, limits, strict=True):
        # 1e-6 beside it: a key's bias, of one number less at all keys, has no gradient but rounding
        assert (a - b).abs().max() <= limit * b.abs().max() + 1e-6


@pytest.mark.parametrize("batch", BATCHES)
def test_the_bundled_model_says_the_same_with_the_same_gradients(batch, bundled, padded):
    tokens = tokens_of(BATCHES[batch])
    assert can_pack(bundled)
    # Its entropies are off by 1.4e-6 in float32; its hidden states in float64 are equal.
    limits = (2e-6, 2e-5) if batch == "sharing" else ()
    same(outcome(bundled, tokens), padded(outcome, bundled, tokens), *limits)


@pytest.mark.parametrize("kind", sorted(MODEL_TYPES))
def test_every_kind_that_is_packed_gives_what_padded_rows_give(kind, padded):
    policy, tokens = policy_of(kind), tokens_of(SHARING)
    assert can_pack(policy)
    same(outcome(policy, tokens), padded(outcome, policy, tokens), 2e-6, 2e-5)


def test_an_adapted_model_does_too(padded):
    policy = adapted(policy_of("qwen2"), model_config(adapter="lora", adapter_rank=4), 0)
    tokens = tokens_of(RAGGED)
    assert can_pack(policy)
    same(outcome(policy, tokens), padded(outcome, policy, tokens))


@pytest.mark.parametrize("batch", BATCHES)
def test_no_padding_is_read_and_equal_beginnings_once(batch):
    prompts, of, responses = BATCHES[batch]
    model, tokens = model_of("llama"), tokens_of(BATCHES[batch])
    read = []
    for part in (model.model.embed_tokens, model.model.layers[-1].mlp):
        part.register_forward_hook(lambda _, __, out: read.append(out.shape[:-1].numel()))
    score(Policy(model), tokens, 1.0)
    before_last = sum(len(prompt) - 1 for prompt in prompts)
    rows = zip(of, responses, strict=True)
    beginnings = {(prompt, *row[:t]) for prompt, row in rows for t in range(len(row))}
    assert read == [before_last, before_last, *[len(beginnings)] * 2]


@pytest.mark.parametrize("packed", [True, False])
def test_rows_without_tokens_have_no_log_probs_and_zero_gradients(packed, padded):
    policy, tokens = policy_of("llama"), tokens_of((PROMPTS, [0, 2], [[], []]))
    found, gradients = (outcome if packed else partial(padded, outcome))(policy, tokens)
    assert all((tensor == 0).all() for tensor in [*found, *gradients.values()])
    part = tokens_of((PROMPTS, [0, 2, 1], [[5, 1], [], []])).rows(torch.tensor([1, 2]))
    assert torch.equal(part.mask, tokens.mask)


def test_the_model_is_as_it_was_after_a_pass_and_after_one_that_failed():
    model, tokens = model_of("llama"), tokens_of(RAGGED)
    seen = []
    hook = model.model.layers[0].register_forward_hook(
        lambda *_: seen.append(model.config._attn_implementation)
    )
    score(Policy(model), tokens, 1.0)
    assert seen == [packed_attention.NAME] * 2
    assert model.config._attn_implementation == "sdpa"
    hook.remove()

    def fail(*_):
        raise MemoryError

    model.model.layers[-1].register_forward_hook(fail)
    with pytest.raises(MemoryError):
        score(Policy(model), tokens, 1.0)
    assert model.config._attn_implementation == "sdpa"


def sharded():
    policy = policy_of("llama")
    policy.sharded = True
    return policy


def eager():
    model = model_of("llama")
    model.set_attn_implementation("eager")
    return Policy(model)


OTHERS = {
    "sliding window": lambda: policy_of("mistral", sliding_window=3),
    "unknown kind": lambda: policy_of("cohere"),
    "eager": eager,
    "sharded": sharded,
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_models_keep_to_padded_rows(case, monkeypatch):
    monkeypatch.setattr(forward, "packed_hidden", None)  # not to be called
    policy, tokens = OTHERS[case](), tokens_of(RAGGED)
    assert not can_pack(policy)
    read = []
    policy.model.get_input_embeddings().register_forward_hook(
        lambda _, __, out: read.append(out.shape[:-1])
    )
    with torch.no_grad():
        score(policy, tokens, 1.0)
        Critic(policy)(tokens)
    assert read == [tokens.prompts[:, :-1].shape, tokens.mask.shape] * 2
