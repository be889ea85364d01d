"""The modules that a learner holds, sharded over its ranks: policy, critic and earlier weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from algorithms.base import Needs
from experiments.config.schema import TrainConfig
from experiments.learner.batching import Tokens, map_micro_batches
from experiments.learner.forward import Critic, scalar_head, score, token_hidden, values_of
from experiments.policy.loading import critic_backbone, own_copy, reference_of
from experiments.policy.lora import load_trained, trained_state
from experiments.policy.policy import Policy, RankGroup
from experiments.policy.snapshots import PastPolicies


class Modules:
    """The trained policy and, if the algorithm needs them, reference, critic and past weights.

    They give log-probs and values without gradient, and the state of all that training changes.
    """

    def __init__(
        self,
        policy: Policy,
        needs: Needs,
        config: TrainConfig,
        ranks: RankGroup,
        keep_reference: bool,
    ) -> None:
        self.policy, self.config, self.ranks = policy, config, ranks
        # A reference that moves is a copy of its own, and leaves the initial policy as it is.
        keep_reference |= needs.reference and config.reference_every is None
        keep_reference |= config.missing_logprobs == "reference"
        self.reference = self._sharded_early(reference_of(policy)) if keep_reference else None
        self.critic: Critic | None = None
        self.value_head: nn.Linear | None = None
        if needs.critic == "separate":
            self.critic = Critic(critic_backbone(policy))
            if policy.adapter is None:
                ranks.shard(self.critic.backbone, self.critic)
        elif needs.critic == "shared":
            self.value_head = scalar_head(policy)
        moving = ("reference",) if config.reference_every else ()
        self.past = PastPolicies(
            policy, lambda: self._sharded_early(own_copy(policy)), (*needs.copies, *moving)
        )
        for held in (self.reference, *self.past.policies.values(), policy):
            if held is not None:
                ranks.shard(held)
        if self.critic is not None:
            ranks.shard(self.critic.backbone, self.critic)
        if self.value_head is not None:
            ranks.shard_head(self.value_head)

    def _sharded_early(self, copied: Policy) -> Policy:
        """Shard a copy at once, so that no two copies are whole at a time.

        Adapted policies share one set of base weights only as long as none of them is sharded.
        """
        if self.policy.adapter is None:
            self.ranks.shard(copied)
        return copied

    @torch.no_grad()
    def logp(
        self, policy: Policy, tokens: Tokens, advance: Callable[[int], None] | None = None
    ) -> Tensor:
        """Return a policy's log-probs at the training temperature, (batch, time), no gradient.

        `advance` is called with the number of responses after each micro-batch.
        """
        tokens = tokens.to(self.policy.model.device)  # from another rank they come in host memory

        def logp(rows: Tensor, _: bool) -> Tensor:
            part = tokens.rows(rows)
            scored = policy.run(score, part, self.config.temperature, entropy="none").logp
            if advance is not None:
                advance(len(rows) * self.ranks.size)
            return scored

        return map_micro_batches(logp, tokens, self.config, self.ranks)

    @torch.no_grad()
    def values(self, tokens: Tokens) -> Tensor:
        """Return the critic's values, (batch, time), without gradient."""

        def values(rows: Tensor, _: bool) -> Tensor:
            part = tokens.rows(rows)
            if self.critic is not None:
                return self.critic(part)
            assert self.value_head is not None
            hidden = self.policy.run(token_hidden, part)
            return values_of(self.value_head, hidden, part.own)

        return map_micro_batches(values, tokens, self.config, self.ranks)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights that training changes; the tensors are not copied."""
        state: dict[str, Any] = {
            "modules": {name: trained_state(module) for name, module in self._trained().items()}
        }
        if self.past.policies:
            state["earlier"] = self.past.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, module in self._trained().items():
            load_trained(module, state["modules"][name])
        if self.past.policies:
            self.past.load_state_dict(state["earlier"])

    def _trained(self) -> dict[str, nn.Module]:
        held = {"model": self.policy.model, "critic": self.critic, "value_head": self.value_head}
        return {name: module for name, module in held.items() if module is not None}
