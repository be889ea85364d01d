"""The policy as it was earlier in the run, for losses that are held to it (ReMix)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from algorithms.base import Needs
from experiments.learner.shards import as_shard
from experiments.learner.weights import tensors_of


class EarlierPolicies:
    """Copies of the weights, as many as are needed; they begin as the policy is at the start."""

    def __init__(self, copied: Callable[[], nn.Module], needs: Needs) -> None:
        """`copied` gives a copy of the policy as it is, sharded as it is."""
        self.needs = needs
        self.before = None if needs.precedent is None else copied()
        self.reincarnated = None if needs.reincarnation is None else copied()

    def reference(self, policy: nn.Module, batches: int) -> nn.Module | None:
        """Whose log-probs the next batch has for its reference's, `batches` after the start.

        None: still those of the run's own. To be asked before each batch.
        """
        since = self.needs.reincarnation
        if since is None or batches < since:
            return None
        if batches == since:
            _take(policy, self.reincarnated)
        return self.reincarnated

    def precedent(self, batches: int) -> nn.Module | None:
        """The policy before the last batch, where the next one needs it."""
        since = self.needs.precedent
        return None if since is None or batches < since else self.before

    def remember(self, policy: nn.Module) -> None:
        """To be called before the first step of each batch, once its precedent was asked."""
        if self.before is not None:
            _take(policy, self.before)

    def __bool__(self) -> bool:
        """Whether any is needed."""
        return bool(self.models())

    def state_dict(self) -> dict[str, Any]:
        """The tensors are its own, not copies."""
        return {name: tensors_of(held) for name, held in self.models().items()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        for name, held in self.models().items():
            for own, known in zip(tensors_of(held), state[name], strict=True):
                own.copy_(as_shard(known, own))

    def models(self) -> dict[str, nn.Module]:
        """Those that are needed, by name."""
        held = {"before": self.before, "reincarnated": self.reincarnated}
        return {name: model for name, model in held.items() if model is not None}


@torch.no_grad()
def _take(policy: nn.Module, into: nn.Module) -> None:
    """The policy's weights, or its adapter's; of shards each rank its own."""
    for own, new in zip(tensors_of(into), tensors_of(policy), strict=True):
        own.copy_(new)
