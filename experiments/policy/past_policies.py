"""Earlier weights of the policy that a loss reads: past policies and a moving average."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from algorithms.base import Needs
from experiments.policy.fsdp import as_shard
from experiments.policy.lora import trained
from experiments.policy.policy import Policy


class PastPolicies:
    """The policy before the last batch (ReMix), and a reference that becomes the present policy.

    Such a reference moves once (ReMix's reincarnation) or after every N batches
    (`train.reference_every`). Both begin as copies of the initial policy; a copy that the run does
    not need is None.
    """

    def __init__(
        self, copy_policy: Callable[[], Policy], needs: Needs, reference_every: int | None = None
    ) -> None:
        """`copy_policy` returns a copy of the present policy, sharded like it."""
        self.needs, self.every = needs, reference_every
        self.before = None if needs.precedent is None else copy_policy()
        moves = needs.reincarnation is not None or reference_every is not None
        self.moving_reference = copy_policy() if moves else None

    def reference(self, policy: Policy, batches: int) -> Policy | None:
        """Return the reference policy for the next batch, `batches` after the start.

        None stands for the initial policy. To be called before each batch.
        """
        since = self.needs.reincarnation
        if self.every is None and (since is None or batches < since):
            return None
        now = batches % self.every == 0 if self.every else batches == since
        if self.moving_reference is not None and now:
            _copy_own(policy, self.moving_reference)
        return self.moving_reference

    def precedent(self, batches: int) -> Policy | None:
        """Return the policy before the last batch if the next batch needs it."""
        since = self.needs.precedent
        return None if since is None or batches < since else self.before

    def remember(self, policy: Policy) -> None:
        """Keep the policy as the precedent; before a batch's first step, after `precedent`."""
        if self.before is not None:
            _copy_own(policy, self.before)

    def __bool__(self) -> bool:
        """Whether the run needs any."""
        return bool(self.policies())

    def state_dict(self) -> dict[str, Any]:
        """Return the weights by name; the tensors are not copied."""
        return {name: policy.own_tensors() for name, policy in self.policies().items()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, policy in self.policies().items():
            for own, saved in zip(policy.own_tensors(), state[name], strict=True):
                own.copy_(as_shard(saved, own))

    def policies(self) -> dict[str, Policy]:
        """Return the policies that the run needs, by name."""
        policies = {"before": self.before, "reference": self.moving_reference}
        return {name: policy for name, policy in policies.items() if policy is not None}


@torch.no_grad()
def _copy_own(policy: Policy, into: Policy) -> None:
    """Copy the policy's weights, or its adapter; each rank copies its own shards."""
    for own, new in zip(into.own_tensors(), policy.own_tensors(), strict=True):
        own.copy_(new)


class MovingAverage:
    """An exponentially weighted moving average of a policy's weights (PPO-EWMA's proximal policy).

    It starts at the policy's weights. After n steps, step i has weight decay^(n − i), and the start
    has that of a step 0 (as in the code of Hilton et al., arXiv 2110.00641). It is kept in float32,
    because bfloat16 loses a tenth of a small step; `policy` holds it rounded.
    """

    def __init__(self, copied: Policy, policy: Policy, decay: float) -> None:
        """`copied`: a copy of the present `policy`, sharded like it, that will hold the average."""
        self.policy = copied
        self.decay, self.weight = decay, 1.0
        moving = {name for name, p in policy.model.named_parameters() if p.requires_grad}
        self.rounded = [p for name, p in copied.model.named_parameters() if name in moving]
        self.exact = [p.detach().float() for p in self.rounded]  # a float32 weight is itself

    @torch.no_grad()
    def follow(self, policy: Policy) -> None:
        """Take in the policy's weights; to be called after each of its steps."""
        self.weight = self.decay * self.weight + 1
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
