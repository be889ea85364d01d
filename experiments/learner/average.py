"""An exponentially weighted moving average of a policy's weights (PPO-EWMA's proximal policy)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.learner.adapters import trained
from experiments.learner.shards import as_shard


class MovingAverage:
    """Starts at the policy's weights; after n steps step i has weight decay^(n − i), and the start
    that of a step 0 (as in the code of Hilton et al., 2110.00641).

    Kept in float32: a tenth of a small step is lost in bfloat16. `model` has it rounded.
    """

    def __init__(self, model: nn.Module, policy: nn.Module, decay: float) -> None:
        """`model`: a copy of the policy as it is, sharded as it is."""
        self.model = model
        self.decay, self.weight = decay, 1.0
        moving = {name for name, each in policy.named_parameters() if each.requires_grad}
        self.rounded = [each for name, each in model.named_parameters() if name in moving]
        self.held = [each.detach().float() for each in self.rounded]  # float32 is itself

    @torch.no_grad()
    def follow(self, policy: nn.Module) -> None:
        """To be called after each step of the policy."""
        self.weight = self.decay * self.weight + 1
        for held, rounded, new in zip(self.held, self.rounded, trained(policy), strict=True):
            held.lerp_(new.float(), 1 / self.weight)
            if rounded.dtype != held.dtype:
                rounded.copy_(held)

    def state_dict(self) -> dict[str, Any]:
        """The tensors are the average's own, not copies."""
        return {"held": self.held, "weight": self.weight}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        self.weight = state["weight"]
        for held, rounded, known in zip(self.held, self.rounded, state["held"], strict=True):
            held.copy_(as_shard(known, held))
            if rounded.dtype != held.dtype:
                rounded.copy_(held)
