"""A conversation is scored in one pass: answers are learned from, observations are only read."""

import pytest
import torch

from experiments.learner import forward
from experiments.learner.batching import Tokens
from experiments.learner.forward import Critic, score
from experiments.policy import loading
from experiments.policy.policy import Policy
from tests.compose import model_config
from tests.experiments.kinds import model_of

PROMPTS = [[2, 7, 9, 30], [2, 11, 3, 8, 40, 12, 6]]
# (prompt, answers and observations in turn); the last two share a first answer and what follows
CONVERSATIONS = [
    (0, [[5, 6, 1], [20, 21], [4, 1], [22], [9, 9, 1]]),
    (0, [[5, 6, 1]]),
    (1, [[30, 1], [20, 20, 20, 23], [8, 7, 1]]),
    (1, [[30, 1], [20, 20, 20, 23], [8, 40, 12, 1]]),
]
STEP = 0.01  # of finite differences; log-probs are computed in float32


def tokens_of(conversations=CONVERSATIONS):
    flat = [[token for part in parts for token in part] for _, parts in conversations]
    own = [
        [number % 2 == 0 for number, part in enumerate(parts) for _ in part]
        for _, parts in conversations
    ]
    prompt_of = [prompt for prompt, _ in conversations]
    return Tokens.pack(PROMPTS, prompt_of, flat, 0, torch.device("cpu"), own)


def naive_logps(model, conversations=CONVERSATIONS, temperature=0.7):
    """Each conversation in a row of its own → log-probs of all answers' tokens, in order."""
    found = []
    for prompt, parts in conversations:
        ids = PROMPTS[prompt] + [token for part in parts for token in part]
        logps = (model(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)
        at = len(PROMPTS[prompt])
        for number, part in enumerate(parts):
            if number % 2 == 0:
                found += [logps[at + i - 1, token] for i, token in enumerate(part)]
            at += len(part)
    return torch.stack(found)


@pytest.fixture(scope="module")
def bundled():
    return loading.load(model_config())[0]


@pytest.fixture(params=[True, False], ids=["packed", "padded"])
def packing(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(forward, "can_pack", lambda _: False)


@pytest.mark.parametrize("kind", ["bundled", "llama", "qwen3"])
def test_log_probs_are_those_of_a_plain_pass_over_the_whole_conversation(kind, bundled, packing):
    policy, tokens = bundled if kind == "bundled" else Policy(model_of(kind)), tokens_of()
    logp = score(policy, tokens, 0.7, entropy="none").logp
    torch.testing.assert_close(logp[tokens.own], naive_logps(policy.model), rtol=1e-6, atol=1e-6)
    assert (logp[~tokens.own] == 0).all() and int(tokens.own.sum()) == 22
    order = torch.tensor([3, 0])
    part = tokens.rows(order)
    again = score(policy, part, 0.7, entropy="none").logp
    torch.testing.assert_close(again[part.own], logp[order][:, : again.shape[1]][part.own])


def test_observations_are_read_and_have_no_gradient_of_their_own(packing):
    """A loss of log-probs: its finite differences agree, and observed tokens are no target of it.

    An id that stands only in observations has an embedding that counts, and an output weight whose
    gradient is that of every token that was not drawn: the softmax's.
    """
    policy = Policy(model_of("llama").double())
    model, tokens = policy.model, tokens_of()
    weight = torch.randn(tokens.own.shape, dtype=torch.float64)

    def loss():
        return (score(policy, tokens, 1.0, entropy="none").logp * weight).sum()

    model.zero_grad()
    loss().backward()
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    for parameter, rows in (
        (embedding, slice(20, 24)),
        (embedding, slice(None)),
        (head, slice(None)),
    ):
        gradient = parameter.grad[rows]
        length = float(gradient.norm())
        assert length > 0  # observations are read
        with torch.no_grad():
            ends = []
            for step in (STEP, -2 * STEP):
                parameter[rows] += step / length * gradient
                ends.append(float(loss()))
            parameter[rows] += STEP / length * gradient
        assert (ends[0] - ends[1]) / (2 * STEP) == pytest.approx(length, rel=0.01)
    other = [
        (p, [part if i % 2 == 0 else [25] * len(part) for i, part in enumerate(parts)])
        for p, parts in CONVERSATIONS
    ]
    changed = score(policy, tokens_of(other), 1.0, entropy="none").logp
    first = torch.zeros_like(tokens.own)
    for row, (_, parts) in enumerate(CONVERSATIONS):
        first[row, : len(parts[0])] = True
    before = score(policy, tokens, 1.0, entropy="none").logp
    torch.testing.assert_close(changed[first], before[first])
    later = tokens.own & ~first
    assert ((changed - before)[later].abs() > 1e-9).all()


def test_a_critic_has_values_before_the_policys_tokens_alone(bundled, packing):
    critic, tokens = Critic(bundled), tokens_of()
    torch.nn.init.normal_(critic.head.weight)
    values = critic(tokens)
    assert (values[~tokens.own] == 0).all() and (values[tokens.own] != 0).all()
