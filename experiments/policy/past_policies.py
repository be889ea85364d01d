"""Earlier weights of the policy that a loss reads: copies, by name, and moving averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from experiments.policy.fsdp import as_shard
from experiments.policy.lora import trained
from experiments.policy.policy import Policy


class PastPolicies:
    """Copies of the initial policy, which take the present weights in when they are told to.

    The algorithm names them (`Needs.copies`); "reference" is also that of `train.reference_every`.
    """

    def __init__(
        self, policy: Policy, copy_policy: Callable[[], Policy], names: Iterable[str]
    ) -> None:
        """`copy_policy` returns a copy of the trained `policy`, sharded like it."""
        self.policy = policy
        self.policies = {name: copy_policy() for name in names}
        self.averages: dict[str, MovingAverage] = {}

    @torch.no_grad()
    def keep(self, name: str) -> None:
        """Copy the policy's weights, or its adapter; each rank copies its own shards."""
        copied = self.policies[name].own_tensors()
        for own, new in zip(copied, self.policy.own_tensors(), strict=True):
            own.copy_(new)

    def average(self, name: str, decay: float) -> None:
        """Take the policy's weights into the moving average that starts at this copy."""
        self._average(name).follow(self.policy, decay)

    def _average(self, name: str) -> MovingAverage:
        if name not in self.averages:
            self.averages[name] = MovingAverage(self.policies[name], self.policy)
        return self.averages[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the weights by name; the tensors are not copied."""
        return {
            "copies": {name: policy.own_tensors() for name, policy in self.policies.items()},
            "averages": {name: average.state_dict() for name, average in self.averages.items()},
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, policy in self.policies.items():
            for own, saved in zip(policy.own_tensors(), state["copies"][name], strict=True):
                own.copy_(as_shard(saved, own))
        for name, saved in state["averages"].items():
            self._average(name).load_state_dict(saved)


class MovingAverage:
    """An exponentially weighted moving average of a policy's weights (PPO-EWMA's proximal policy).

    It starts at the weights of a copy, which holds it rounded. After n steps, step i has
    weight decay^(n − i), and the start has that of a step 0 (as in the code of Hilton et al., arXiv
    2110.00641). It is kept in float32, because bfloat16 loses a tenth of a small step.
    """

    def __init__(self, copied: Policy, policy: Policy) -> None:
        """`copied`: a copy of `policy` at its initial weights, which will hold the average."""
        self.weight = 1.0
        moving = {name for name, p in policy.model.named_parameters() if p.requires_grad}
        self.rounded = [p for name, p in copied.model.named_parameters() if name in moving]
        self.exact = [p.detach().float() for p in self.rounded]  # a float32 weight is itself

    @torch.no_grad()
    def follow(self, policy: Policy, decay: float) -> None:
        """Take in the policy's weights; to be called after each of its steps."""
        self.weight = decay * self.weight + 1
        new_weights = trained(policy.model)
        for exact, rounded, new in zip(self.exact, self.rounded, new_weights, strict=True):
            exact.lerp_(new.float(), 1 / self.weight)
            if rounded.dtype != exact.dtype:
                rounded.copy_(exact)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and its weight; the tensors are not copied."""
        return {"held": self.exact, "weight": self.weight}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.weight = state["weight"]
        for exact, rounded, saved in zip(self.exact, self.rounded, state["held"], strict=True):
            exact.copy_(as_shard(saved, exact))
            if rounded.dtype != exact.dtype:
                rounded.copy_(exact)
