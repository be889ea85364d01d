"""AdamW in float32: steps that bfloat16 could not hold are not lost; float32 stays as it was."""

from types import SimpleNamespace

import torch
from torch import nn

from experiments.learner.optimiser import Float32AdamW, parameter_groups
from experiments.policy.policy import Policy


def twins(dtype):
    torch.manual_seed(0)
    whole = nn.Linear(16, 8)
    with torch.no_grad():
        whole.weight.copy_(whole.weight.bfloat16().float())
        whole.bias.copy_(whole.bias.bfloat16().float())
    other = nn.Linear(16, 8).to(dtype)
    other.load_state_dict(whole.state_dict())
    return whole, other


def train(layer, optimiser, steps, parts=1):
    torch.manual_seed(1)
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        for part in torch.randn(parts, 4, 16).to(layer.weight.dtype):
            (layer(part).float().square().sum() / parts).backward()
            if isinstance(optimiser, Float32AdamW):
                optimiser.take_gradients()
        optimiser.step()


def test_float32_is_plain_adamw_to_the_bit():
    ours, plain = twins(torch.float32)
    train(ours, Float32AdamW([(ours.parameters(), 1e-2)], 0.1), 5, parts=2)
    train(plain, torch.optim.AdamW(plain.parameters(), 1e-2, weight_decay=0.1), 5, parts=2)
    assert all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters(), strict=True)
    )


def test_a_critic_has_a_rate_of_its_own():
    options = SimpleNamespace(learning_rate=1e-3, critic_rate=1e-2)
    model, head = nn.Linear(2, 3), nn.Linear(3, 1)
    groups = parameter_groups(options, Policy(model), None, head)
    assert [rate for _, rate in groups] == [1e-3, 1e-2]
    assert [list(parameters) for parameters, _ in groups] == [
        list(model.parameters()),
        list(head.parameters()),
    ]
    assert [rate for _, rate in parameter_groups(options, Policy(model), None, None)] == [1e-3]


def test_small_steps_add_up_where_bfloat16_alone_would_lose_them():
    whole, low = twins(torch.bfloat16)
    _, lost = twins(torch.bfloat16)
    start = low.weight.detach().clone()
    optimiser = Float32AdamW([(low.parameters(), 1e-5)], 0.0)
    train(low, optimiser, 300)
    train(lost, torch.optim.AdamW(lost.parameters(), 1e-5, weight_decay=0.0), 300)
    train(whole, torch.optim.AdamW(whole.parameters(), 1e-5, weight_decay=0.0), 300)
    moved = (whole.weight - start.float()).abs().mean()
    assert (low.weight.float() - start.float()).abs().mean() > 0.8 * moved
    assert (lost.weight.float() - start.float()).abs().mean() < 0.3 * moved
    (_, copy), *_ = optimiser.copies
    assert torch.equal(copy.bfloat16(), low.weight)


def test_gradients_of_micro_batches_add_up_in_float32():
    _, low = twins(torch.bfloat16)
    optimiser = Float32AdamW([(low.parameters(), 0.0)], 0.0)
    large, small = torch.full((4, 16), 8.0), torch.full((4, 16), 0.01)
    for part in (large, *[small] * 50):
        low(part.bfloat16()).sum().backward()
        optimiser.take_gradients()
    (_, copy), *_ = optimiser.copies
    assert low.weight.grad is None
    expected = 4 * 8.0 + 50 * 4 * float(torch.tensor(0.01).bfloat16())
    torch.testing.assert_close(copy.grad, torch.full_like(copy.grad, expected), rtol=5e-3, atol=0)
