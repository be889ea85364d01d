"""Clipping of each parameter group's gradient norm, at a fixed bound or at a quantile of its own.

A fixed bound (`train.max_grad_norm`) is not the same for all objectives: their gradients' norms
differ by factors of a thousand, so that one is clipped at every step and another at none. A
quantile (`train.clip_quantile`) clips about the same share of steps for all. The bound of a step is
the quantile of the group's last `WINDOW` norms above 0, before they were clipped; the first step
has none. A norm of 0 (all groups without variance) says nothing of the scale: among the last norms
it could set the bound to 0 and erase the next gradient.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from experiments.policy.fsdp import whole

if TYPE_CHECKING:
    from experiments.config.schema import TrainConfig

# Few, since norms drift over a run: in 120 batches of SPO, RAFT, PPO and its critic a quantile of
# 0.9 clipped 8 to 19 % of the steps with 20 norms, 3 to 30 % with 100. The first steps need no rule
# of their own: their quantile is of the norms before them, and the learning rate is warming up.
WINDOW = 20
NORMS = ("grad_norm", "critic_grad_norm")  # of the parameter groups, in their order


class NormClipping:
    """Clips gradients, and keeps the norms that the next bounds come from."""

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
            bound = self._bound(name)
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

    def _bound(self, name: str) -> float:
        if self.quantile is None:
            return self.fixed
        if not self.past[name]:
            return math.inf
        past = torch.tensor(self.past[name], dtype=torch.float64)
        return float(past.quantile(self.quantile))

    def state_dict(self) -> dict[str, list[float]]:
        """Return the norms of the last steps; none with a fixed bound."""
        return {name: list(norms) for name, norms in self.past.items() if norms}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Restore what `state_dict` returned."""
        for name, norms in state.items():
            self.past[name] = deque(norms, maxlen=WINDOW)
