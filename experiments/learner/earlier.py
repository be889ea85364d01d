"""The policy as it was earlier in the run, for losses that are held to it (ReMix)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from algorithms.base import Needs
from experiments.learner.models import own_copy
from experiments.learner.weights import copy_weights, tensors_of


class EarlierPolicies:
    """Copies of the weights, as many as are needed; they begin as the policy is at the start."""

    def __init__(self, policy: nn.Module, needs: Needs) -> None:
        self.needs = needs
        self.before = None if needs.precedent is None else own_copy(policy)
        self.reincarnated = None if needs.reincarnation is None else own_copy(policy)

    def reference(self, policy: nn.Module, batches: int) -> nn.Module | None:
        """Whose log-probs the next batch has for its reference's, `batches` after the start.

        None: still those of the run's own. To be asked before each batch.
        """
        since = self.needs.reincarnation
        if since is None or batches < since:
            return None
        if batches == since:
            copy_weights(policy, self.reincarnated)
        return self.reincarnated

    def precedent(self, batches: int) -> nn.Module | None:
        """The policy before the last batch, where the next one needs it."""
        since = self.needs.precedent
        return None if since is None or batches < since else self.before

    def remember(self, policy: nn.Module) -> None:
        """To be called before the first step of each batch, once its precedent was asked."""
        if self.before is not None:
            copy_weights(policy, self.before)

    def __bool__(self) -> bool:
        """Whether any is needed."""
        return bool(self._held())

    def state_dict(self) -> dict[str, Any]:
        """The tensors are its own, not copies."""
        return {name: tensors_of(held) for name, held in self._held().items()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        for name, held in self._held().items():
            for own, known in zip(tensors_of(held), state[name], strict=True):
                own.copy_(known)

    def _held(self) -> dict[str, nn.Module]:
        held = {"before": self.before, "reincarnated": self.reincarnated}
        return {name: model for name, model in held.items() if model is not None}
