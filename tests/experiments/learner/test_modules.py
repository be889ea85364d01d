"""AdamW in float32 loses no small step; gradient norms have a bound, fixed or a quantile."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import algorithms
from experiments.learner.modules import NORMS, WINDOW, Float32AdamW, NormClipping, parameter_groups
from experiments.policy.policy import Policy
from tests.compose import train_config
from tests.experiments.learner.learning import GROUP, REWARDS, learner_of, samples_from


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
    assert all(map(torch.equal, ours.parameters(), plain.parameters()))


def test_a_critic_has_a_rate_of_its_own():
    options = SimpleNamespace(learning_rate=1e-3, critic_rate=1e-2)
    model, head = nn.Linear(2, 3), nn.Linear(3, 1)
    groups = parameter_groups(options, Policy(model), None, head)
    assert [rate for _, rate in groups] == [1e-3, 1e-2]
    own = [list(each.parameters()) for each in (model, head)]
    assert [list(parameters) for parameters, _ in groups] == own
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


def clipped(clipping, *norms):
    """Clip one parameter in each group whose gradient has this norm → metrics, norms after."""
    groups = []
    for norm in norms:
        parameter = torch.nn.Parameter(torch.zeros(2))
        parameter.grad = torch.tensor([0.6 * norm, 0.8 * norm])
        groups.append({"params": [parameter]})
    metrics = {name: float(value) for name, value in clipping.clip(groups).items()}
    return metrics, [float(group["params"][0].grad.norm()) for group in groups]


def test_a_fixed_bound_is_the_same_for_both_groups():
    metrics, after = clipped(NormClipping(train_config(max_grad_norm=2.0)), 8.0, 1.0)
    assert after == pytest.approx([2, 1])
    assert metrics == pytest.approx(
        {"grad_norm": 8, "step_clipped": 1, "critic_grad_norm": 1, "critic_step_clipped": 0}
    )


def test_a_quantiles_bound_is_of_the_groups_own_norms_before():
    clipping = NormClipping(train_config(clip_quantile=0.5))
    norms = [(1.0, 100.0), (3.0, 100.0), (5.0, 400.0), (4.0, 50.0)]
    bounds = [(math.inf, math.inf), (1.0, 100.0), (2.0, 100.0), (3.0, 100.0)]
    for step, step_bounds in zip(norms, bounds, strict=True):
        metrics, after = clipped(clipping, *step)
        expected = [min(norm, bound) for norm, bound in zip(step, step_bounds, strict=True)]
        assert after == pytest.approx(expected, rel=1e-5)
        found = [metrics.get(f"{name}_bound", math.inf) for name in NORMS]
        assert tuple(found) == step_bounds
        assert metrics["step_clipped"] == (step[0] > step_bounds[0])


def test_steps_without_a_gradient_erase_no_later_one():
    clipping = NormClipping(train_config(clip_quantile=0.9))
    for norm in (3.0, 2.0):
        for _ in range(2 * WINDOW):
            clipped(clipping, 0.0)
        assert clipped(clipping, norm)[1] == [norm]


def test_a_policy_that_waits_for_its_critic_has_no_step_to_clip_and_sets_no_bound():
    clipping = NormClipping(train_config(clip_quantile=0.5))
    gradients = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    for parameter in gradients:
        parameter.grad = torch.ones(1)
    groups = [{"params": [parameter]} for parameter in gradients]
    metrics = clipping.clip(groups, policy_waits=True)
    assert set(metrics) == {"grad_norm", "critic_grad_norm", "critic_step_clipped"}
    assert clipping.state_dict() == {"critic_grad_norm": [1.0]}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_about_the_same_share_is_clipped_at_every_scale_and_while_norms_drift(scale, quantile):
    """A fixed bound of 1 clips none, 70 and all of these 300 steps."""
    generator = torch.Generator().manual_seed(0)
    drift = torch.linspace(0, math.log(10), 300)
    norms = scale * (0.5 * torch.randn(300, generator=generator) + drift).exp()
    clipping = NormClipping(train_config(clip_quantile=quantile))
    share = sum(clipped(clipping, norm)[0]["step_clipped"] for norm in norms.tolist()) / 300
    assert share == pytest.approx(1 - quantile, abs=0.1)


def state(learner):
    return [p.detach() for group in learner.optimiser.param_groups for p in group["params"]]


def test_a_resumed_learner_has_the_bounds_of_one_that_went_on(tiny):
    samples = samples_from(tiny, REWARDS)
    whole, first, resumed = (
        learner_of(tiny, algorithms.make("ppo", learning_rate=1e-2), clip_quantile=0.5)
        for _ in range(3)
    )
    for _ in range(3):
        whole.update(samples, GROUP, None)
        first.update(samples, GROUP, None)
    resumed.load_state_dict(first.state_dict())
    for _ in range(2):
        assert resumed.update(samples, GROUP, None) == whole.update(samples, GROUP, None)
    assert all(map(torch.equal, state(resumed), state(whole)))
