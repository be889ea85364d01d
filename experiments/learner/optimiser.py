"""AdamW in float32, whatever the precision of the parameters.

A step of 1e-6 on a bfloat16 weight of 0.01 is a fortieth of the distance to the next number that
bfloat16 has: added there it would be lost, and with it all training. So parameters of a lower
precision have a float32 copy, where gradients of micro-batches add up and steps are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from experiments.policy.lora import rate_factor, trained

if TYPE_CHECKING:
    from algorithms.base import Options
    from experiments.config.schema import TrainConfig
    from experiments.learner.forward import Critic
    from experiments.policy.policy import Policy


class Float32AdamW(torch.optim.AdamW):
    """AdamW over float32 parameters themselves, and over copies of others."""

    def __init__(
        self, groups: Iterable[tuple[Iterable[nn.Parameter], float]], weight_decay: float
    ) -> None:
        """groups: (parameters, learning rate) of each."""
        self.copies: list[tuple[nn.Parameter, Tensor]] = []
        super().__init__(
            [{"params": [self._held(p) for p in params], "lr": rate} for params, rate in groups],
            weight_decay=weight_decay,
        )

    def _held(self, parameter: nn.Parameter) -> Tensor:
        if parameter.dtype == torch.float32:
            return parameter
        copy = parameter.detach().float().requires_grad_(True)
        self.copies.append((parameter, copy))
        return copy

    def state_dict(self) -> dict[str, Any]:
        """As torch's, with the copies: rounded parameters do not tell them."""
        return super().state_dict() | {"copies": [copy for _, copy in self.copies]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Back to what `state_dict` held, over parameters of the same shapes."""
        held = dict(state_dict)
        with torch.no_grad():
            for (_, copy), value in zip(self.copies, held.pop("copies"), strict=True):
                copy.copy_(value)
        super().load_state_dict(held)

    @torch.no_grad()
    def take_gradients(self) -> None:
        """After each backward pass: gradients go to the copies, where they add up in float32."""
        for parameter, copy in self.copies:
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                copy.grad = gradient if copy.grad is None else copy.grad.add_(gradient)
                parameter.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step, rounded into the parameters only where they are used."""
        result = super().step(closure)
        with torch.no_grad():
            for parameter, copy in self.copies:
                parameter.copy_(copy)
        return result


def parameter_groups(
    options: Options, policy: Policy, critic: Critic | None, value_head: nn.Module | None
) -> list[tuple[list[nn.Parameter], float]]:
    """Return the trained parameters and the learning rate of the policy, and of any critic."""
    groups = [(trained(policy.model), options.learning_rate * rate_factor(policy))]
    if critic is not None:
        groups.append((trained(critic), options.critic_rate * rate_factor(critic.backbone)))
    elif value_head is not None:
        groups.append((trained(value_head), options.critic_rate))
    return groups


def learning_rate_factor(config: TrainConfig, steps: int) -> Callable[[int], float]:
    """Linear warm-up, then constant, or down to zero at the end linearly or as a half cosine."""

    def factor(step: int) -> float:
        if step < config.warmup_steps:
            return (step + 1) / config.warmup_steps
        done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
        if config.schedule == "linear":
            return max(0.0, 1 - done)
        if config.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return 1.0

    return factor
