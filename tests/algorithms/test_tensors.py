"""The tensor operations that all algorithms share."""

from typing import get_args

import pytest
import torch

from algorithms import logprobs
from algorithms.logprobs import Float32Head, chosen_logp
from algorithms.tensors import (
    KLKind,
    group_ranks,
    kl,
    masked_mean,
    masked_sum,
    masked_whiten,
    tie_breakers,
)


def test_masked_statistics_read_only_what_is_masked_in():
    x = torch.tensor([[1.0, float("nan")], [3.0, 5.0]])
    mask = torch.tensor([[True, False], [True, True]])
    assert masked_sum(x, mask).tolist() == [1, 8]
    assert masked_mean(x, mask).item() == 3
    white = masked_whiten(x, mask)
    assert white[0, 1] == 0
    assert white[mask].mean().item() == pytest.approx(0, abs=1e-6)
    assert white[mask].var(unbiased=False).item() == pytest.approx(1, abs=1e-5)


def test_k3_pulls_back_beyond_its_bound_too():
    """A plain bound on its exponent left the slope +1 there: further away from the reference."""
    logp = torch.tensor([-60.0, -25.0, -20.1, -19.9], dtype=torch.float64, requires_grad=True)
    value = kl(logp, torch.zeros(4, dtype=torch.float64), "k3")
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert (value[:-1] > value[1:]).all()
    assert (logp.grad < 0).all()


def test_k1_and_k3_are_unbiased_and_the_gradients_are_as_documented():
    """By enumeration: Σ_a π(a) estimator(a) against KL(π ‖ ref) and its true gradient."""
    logits = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ref = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ref = ref.log_softmax(-1)

    def true_gradient():
        x = logits.clone().requires_grad_(True)
        logp = x.log_softmax(-1)
        value = (logp.exp() * (logp - ref)).sum()
        value.backward()
        return value.item(), x.grad

    value, gradient = true_gradient()
    grads = {}
    for kind in get_args(KLKind):
        x = logits.clone().requires_grad_(True)
        logp = x.log_softmax(-1)
        estimate = (logp.exp().detach() * kl(logp, ref, kind)).sum()
        estimate.backward()
        grads[kind] = x.grad
        if kind != "k2":
            assert estimate.item() == pytest.approx(value, abs=1e-12)
    torch.testing.assert_close(grads["k1"], torch.zeros_like(gradient))
    torch.testing.assert_close(grads["k2"], gradient)
    torch.testing.assert_close(grads["k3+"], gradient)
    assert (grads["k3"] - gradient).abs().max() > 1e-2


@pytest.mark.parametrize("kind", [torch.nn.Linear, Float32Head])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_chunks_have_the_gradients_of_the_whole(monkeypatch, temperature, frozen, bias, kind):
    """Gradients of hidden states and of the head unless frozen, with a slope for each token."""
    generator = torch.Generator().manual_seed(0)
    head = kind(8, 30, bias=bias).requires_grad_(not frozen)
    start = torch.randn(17, 8, generator=generator)
    tokens = torch.randint(30, (17,), generator=generator)
    slope = torch.randn(17, generator=generator)
    results = []
    for budget in (2**24, 100):
        monkeypatch.setattr(logprobs, "LOGITS_PER_CHUNK", budget)
        hidden = start.clone().requires_grad_(True)
        head.zero_grad()
        logp, entropy = chosen_logp(hidden, head, tokens, temperature)
        (logp * slope).sum().backward()
        gradients = [p.grad for p in head.parameters() if p.grad is not None]
        assert len(gradients) == (0 if frozen else 1 + bias)
        results.append([logp.detach(), entropy, hidden.grad, *gradients])
        bare, nothing = chosen_logp(hidden, head, tokens, temperature, entropy="none")
        assert torch.equal(bare, logp)
        assert nothing.isnan().all()
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_a_float32_head_rounds_no_logit_of_low_precision_weights(monkeypatch):
    monkeypatch.setattr(logprobs, "LOGITS_PER_CHUNK", 100)
    head, hidden = Float32Head(8, 30).bfloat16(), torch.randn(17, 8).bfloat16()
    tokens = torch.randint(30, (17,))
    exact = torch.nn.functional.linear(hidden.double(), head.weight.double(), head.bias.double())
    for kind in ("graph", "none"):  # two ways through the chunks
        found, _ = chosen_logp(hidden, head, tokens, entropy=kind)
        expected = exact.log_softmax(-1).gather(1, tokens[:, None]).squeeze(1)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


def test_ranks_follow_key_then_tie_breaker_then_row():
    key = torch.tensor([[1.0, 2.0, 1.0, 2.0, 0.0, 2.0]])
    tie_breaker = torch.tensor([[0.3, 0.1, 0.7, 0.1, 0.9, 0.5]])
    keep = torch.tensor([[True, True, True, True, True, False]])
    assert group_ranks(key, tie_breaker, keep).tolist() == [[3, 0, 2, 1, 4, 0]]


def test_a_tie_breaker_depends_on_its_response_alone():
    logp = -torch.rand(6, 4, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([4, 2, 3, 1, 4, 2]).unsqueeze(-1)
    numbers = tie_breakers(logp.masked_fill(~mask, float("nan")), mask)
    assert ((numbers >= 0) & (numbers < 1)).all()
    order = torch.randperm(6)
    assert torch.equal(tie_breakers(logp[order], mask[order]), numbers[order])
