"""AdamW in float32 at any precision of the parameters.

A step of 1e-6 on a bfloat16 weight of 0.01 is a fortieth of the distance to the next bfloat16
number, so adding it there would lose it, and all training. Parameters of a lower precision
therefore have a float32 copy, in which gradients of micro-batches add up and steps are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor, nn

from experiments.policy.fsdp import as_shard
from experiments.policy.lora import rate_factor, trained

if TYPE_CHECKING:
    from algorithms.base import Options
    from experiments.config.schema import TrainConfig
    from experiments.learner.forward import Critic
    from experiments.policy.policy import Policy


class CriticOptions(Protocol):
    """The options of an algorithm with a critic."""

    critic_rate: float


class Float32AdamW(torch.optim.AdamW):
    """AdamW over float32 parameters themselves, and over float32 copies of others."""

    def __init__(
        self, groups: Iterable[tuple[Iterable[nn.Parameter], float]], weight_decay: float
    ) -> None:
        """`groups`: (parameters, learning rate) of each."""
        self.copies: list[tuple[nn.Parameter, Tensor]] = []
        super().__init__(
            [{"params": [self._float32(p) for p in params], "lr": rate} for params, rate in groups],
            weight_decay=weight_decay,
        )

    def _float32(self, parameter: nn.Parameter) -> Tensor:
        if parameter.dtype == torch.float32:
            return parameter
        copy = parameter.detach().float().requires_grad_(True)
        self.copies.append((parameter, copy))
        return copy

    def state_dict(self) -> dict[str, Any]:
        """Return torch's state and the copies, which rounded parameters do not determine."""
        return super().state_dict() | {"copies": [copy for _, copy in self.copies]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, for parameters of the same shapes."""
        state = dict(state_dict)
        with torch.no_grad():
            for (_, copy), value in zip(self.copies, state.pop("copies"), strict=True):
                copy.copy_(value)
        super().load_state_dict(state)

    def load_full_state(self, state: dict[str, Any]) -> None:
        """Restore an unsharded `state_dict`, of which this rank takes copies of its shards."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        moments = {
            index: {
                key: as_shard(value, parameters[index]).clone() if value.dim() else value.clone()
                for key, value in values.items()
            }
            for index, values in state["state"].items()
        }
        pairs = zip(state["copies"], self.copies, strict=True)
        copies = [as_shard(value, copy) for value, (_, copy) in pairs]
        self.load_state_dict(state | {"state": moments, "copies": copies})

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Add gradients to those of the copies, in float32; to be called after each backward."""
        for parameter, copy in self.copies:
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                copy.grad = gradient if copy.grad is None else copy.grad.add_(gradient)
                parameter.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; parameters with a copy get its rounded values."""
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
        rate = cast(CriticOptions, options).critic_rate * rate_factor(critic.backbone)
        groups.append((trained(critic), rate))
    elif value_head is not None:
        groups.append((trained(value_head), cast(CriticOptions, options).critic_rate))
    return groups


def learning_rate_factor(config: TrainConfig, steps: int) -> Callable[[int], float]:
    """Return the factor by step: warm-up, then constant, or linear or cosine decay to zero."""

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
