"""Scoring with shared prompts equals one plain forward pass for each sequence."""

import pytest
import torch

from experiments.learner.batching import Tokens
from experiments.learner.forward import Critic, score
from experiments.policy.policy import Policy
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
