"""AdamW in float32 at any precision of the parameters.

A step of 1e-6 on a bfloat16 weight of 0.01 is a fortieth of the distance to the next bfloat16
number, so adding it there would lose it, and all training. Parameters of a lower precision
therefore have a float32 copy, in which gradients of micro-batches add up and steps are taken.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.config.schema import TrainConfig
from experiments.learner.forward import Critic
from experiments.policy.lora import rate_factor, trained
from experiments.policy.policy import Policy, as_shard, whole

# Few, since norms drift over a run: in 120 batches of SPO, RAFT, PPO and its critic a quantile of
# 0.9 clipped 8 to 19 % of the steps with 20 norms, 3 to 30 % with 100. The first steps need no rule
# of their own: their quantile is of the norms before them, and the learning rate is warming up.
WINDOW = 20
NORMS = ("grad_norm", "critic_grad_norm")  # of the parameter groups, in their order


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
        """Restore what `state_dict` returned, whole: this rank takes copies of its shards."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        moments = {
            index: {
                key: as_shard(value, parameters[index]).clone() if value.dim() else value.clone()
                for key, value in values.items()
            }
            for index, values in state_dict["state"].items()
        }
        with torch.no_grad():
            for value, (_, copy) in zip(state_dict["copies"], self.copies, strict=True):
                copy.copy_(as_shard(value, copy))
        super().load_state_dict({"state": moments, "param_groups": state_dict["param_groups"]})

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
    options: Any, policy: Policy, critic: Critic | None, value_head: nn.Module | None
) -> list[tuple[list[nn.Parameter], float]]:
    """Return the trained parameters and the learning rate of the policy, and of any critic."""
    groups = [(trained(policy.model), options.learning_rate * rate_factor(policy))]
    if critic is not None:
        groups.append((trained(critic), options.critic_rate * rate_factor(critic.backbone)))
    elif value_head is not None:
        groups.append((trained(value_head), options.critic_rate))
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


class NormClipping:
    """Clips each parameter group's gradient norm, at a fixed bound or at a quantile of its own.

    A fixed bound (`train.max_grad_norm`) is not the same for all objectives: their gradients' norms
    differ by factors of a thousand, so that one is clipped at every step and another at none. A
    quantile (`train.clip_quantile`) clips about the same share of steps for all. The bound of a
    step is the quantile of the group's last `WINDOW` norms above 0, before they were clipped; the
    first step has none. A norm of 0 (all groups without variance) says nothing of the scale: among
    the last norms it could set the bound to 0 and erase the next gradient.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.fixed = math.inf if config.max_grad_norm is None else config.max_grad_norm
        self.quantile = config.clip_quantile
        self.past = {name: deque[float](maxlen=WINDOW) for name in NORMS}

    def clip(
        self, groups: Sequence[dict[str, Any]], policy_waits: bool = False
    ) -> dict[str, Tensor]:
        """Scale each group's gradients down to its bound → norms before that, whether clipped.

        With a quantile also the bounds, from the second step on. A collective of all ranks, who
        get the same numbers. `policy_waits`: the step is the critic's alone. So the policy has no
        step to clip, and its norm is no measure for its later steps.
        """
        metrics: dict[str, Tensor] = {}
        for name, group in zip(NORMS, groups, strict=False):
            bound, past = self.fixed, torch.tensor(self.past[name], dtype=torch.float64)
            if self.quantile is not None:
                bound = float(past.quantile(self.quantile)) if len(past) else math.inf
            norm = whole(nn.utils.clip_grad_norm_(group["params"], bound))
            metrics[name] = norm
            if policy_waits and name == NORMS[0]:
                continue
            metrics[name.replace("grad_norm", "step_clipped")] = (norm > bound).float()
            if self.quantile is not None:
                if math.isfinite(bound):
                    metrics[f"{name}_bound"] = torch.tensor(bound)
                if float(norm) > 0:
                    self.past[name].append(float(norm))
        return metrics

    def state_dict(self) -> dict[str, list[float]]:
        """Return the norms of the last steps; none with a fixed bound."""
        return {name: list(norms) for name, norms in self.past.items() if norms}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Restore what `state_dict` returned."""
        for name, norms in state.items():
            self.past[name] = deque(norms, maxlen=WINDOW)
