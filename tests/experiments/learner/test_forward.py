"""Shared prompts and packed rows give what one plain forward pass for each sequence gives."""

from functools import partial

import pytest
import torch

from experiments.learner import forward
from experiments.learner.batching import Tokens
from experiments.learner.forward import Critic, can_pack, scalar_head, score
from experiments.policy import loading
from experiments.policy.lora import adapted
from experiments.policy.patches import MODEL_TYPES
from experiments.policy.policy import Policy
from tests.compose import model_config
from tests.experiments.kinds import SLIDING, WINDOW, model_of, plain_logp

PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6]]
OF = [0, 0, 1, 2, 2]
RESPONSES = [[5, 6, 1], [9], [4, 4, 4, 8, 1], [3, 1], [30, 31]]


@pytest.fixture
def tokens():
    return Tokens.pack(PROMPTS, OF, RESPONSES, 0, torch.device("cpu"))


def plain(model, temperature):
    rows = []
    for prompt, response in zip(OF, RESPONSES, strict=True):
        logits = model(torch.tensor([PROMPTS[prompt] + response])).logits / temperature
        logp = logits.log_softmax(-1)[0, len(PROMPTS[prompt]) - 1 : -1]
        rows.append(logp.gather(-1, torch.tensor(response)[:, None]).squeeze(-1))
    return rows


def test_log_probs_and_gradient_equal_a_plain_forward_pass(tiny, tokens):
    output = score(Policy(tiny), tokens, 0.7)
    weights = torch.randn(output.logp.shape, generator=torch.Generator().manual_seed(0))
    (output.logp * weights).sum().backward()
    shared = {name: p.grad.clone() for name, p in tiny.named_parameters()}
    tiny.zero_grad()
    expected = plain(tiny, 0.7)
    for row, logp in enumerate(expected):
        torch.testing.assert_close(output.logp[row, : len(logp)], logp, rtol=0, atol=1e-5)
    total = sum((logp * weights[row, : len(logp)]).sum() for row, logp in enumerate(expected))
    total.backward()
    for name, parameter in tiny.named_parameters():
        torch.testing.assert_close(shared[name], parameter.grad, rtol=1e-4, atol=1e-5)


def test_padding_is_zero_and_more_of_it_changes_nothing(tiny, tokens):
    output = score(Policy(tiny), tokens, 1.0)
    assert (output.logp[~tokens.mask] == 0).all()
    wider = Tokens.pack(
        [*PROMPTS, [2] * 11], [*OF, 3], [*RESPONSES, [7] * 9], 0, torch.device("cpu")
    )
    more = score(Policy(tiny), wider, 1.0).logp[:5, : tokens.mask.shape[1]]
    torch.testing.assert_close(more, output.logp, rtol=0, atol=1e-5)


def test_rows_carry_only_their_prompts_and_width(tiny, tokens):
    part = tokens.rows(torch.tensor([3, 2]))
    assert part.prompts.shape == (2, 7)
    assert part.responses.shape == (2, 5)
    narrow = tokens.rows(torch.tensor([0, 1]))
    assert narrow.prompts.shape == (1, 4)
    whole = score(Policy(tiny), tokens, 1.0).logp
    torch.testing.assert_close(
        score(Policy(tiny), part, 1.0).logp, whole[[3, 2]], rtol=0, atol=1e-5
    )


def test_a_critic_starts_at_zero_and_reads_the_state_before_each_token(tiny, tokens):
    critic = Critic(Policy(tiny))
    assert (critic(tokens) == 0).all()
    with torch.no_grad():
        critic.head.weight.normal_()
    before = critic(tokens)
    changed = [list(response) for response in RESPONSES]
    changed[2][3] = 20
    after = critic(Tokens.pack(PROMPTS, OF, changed, 0, torch.device("cpu")))
    assert torch.equal(before[2, :4], after[2, :4])
    assert before[2, 4] != after[2, 4]


@pytest.mark.parametrize("kind", sorted(SLIDING))
def test_a_sliding_window_is_the_models_own(kind):
    model, random = model_of(kind, **SLIDING[kind]), torch.Generator().manual_seed(0)
    responses = [torch.randint(3, 40, (n,), generator=random).tolist() for n in (3, 9, 20, 1, 14)]
    assert max(map(len, responses)) > 3 * WINDOW > WINDOW > min(map(len, PROMPTS))
    tokens = Tokens.pack(PROMPTS, OF, responses, 0, torch.device("cpu"))
    parameters = list(model.parameters())
    logp = score(Policy(model), tokens, 1.0).logp
    plain = [plain_logp(model, PROMPTS[of], r) for of, r in zip(OF, responses, strict=True)]
    for row, expected in zip(logp, plain, strict=True):
        torch.testing.assert_close(row[: len(expected)], expected, rtol=0, atol=1e-4)
    grads = torch.autograd.grad(logp.exp().sum(), parameters)
    wanted = torch.autograd.grad(sum(row.exp().sum() for row in plain), parameters)
    for found, expected in zip(grads, wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


MORE_PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6], [9, 9, 31]]
MORE_RESPONSES = [[5, 6, 1], [9], [4, 4, 4, 8, 1], [3, 1], [30, 31, 22, 7, 7, 1], [8], [2, 1]]
# A prompt's rows need not be neighbours.
RAGGED = (MORE_PROMPTS, [0, 0, 1, 2, 2, 3, 0], MORE_RESPONSES)
# Two that are equal; ones that end where others go on, the padding's id among what follows; a row
# that shares with one what that shares with another; the same after other prompts.
LONG, OTHER = [5, 0, 0, 7, 1], [5, 0, 3]
ALIKE = [LONG, [5], [5, 0], LONG, OTHER, [5, 0, 3, 2], OTHER, [5, 0, 0]]
SHARING = (MORE_PROMPTS, [0, 0, 0, 0, 1, 0, 0, 3], ALIKE)
BATCHES = {
    "ragged": RAGGED,
    "sharing": SHARING,
    "one prompt": (MORE_PROMPTS[2:3], [0] * 7, MORE_RESPONSES),
    "shortest": ([[2, 5]], [0], [[9]]),
    "no padding": (MORE_PROMPTS[:1], [0, 0], [[5, 6, 1], [4, 8, 1]]),
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
    policy, tokens = policy_of("llama"), tokens_of((MORE_PROMPTS, [0, 2], [[], []]))
    found, gradients = (outcome if packed else partial(padded, outcome))(policy, tokens)
    assert all((tensor == 0).all() for tensor in [*found, *gradients.values()])
    part = tokens_of((MORE_PROMPTS, [0, 2, 1], [[5, 1], [], []])).rows(torch.tensor([1, 2]))
    assert torch.equal(part.mask, tokens.mask)


def test_the_model_is_as_it_was_after_a_pass_and_after_one_that_failed():
    model, tokens = model_of("llama"), tokens_of(RAGGED)
    seen = []
    hook = model.model.layers[0].register_forward_hook(
        lambda *_: seen.append(model.config._attn_implementation)
    )
    score(Policy(model), tokens, 1.0)
    assert seen == [forward.PACKED] * 2
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
