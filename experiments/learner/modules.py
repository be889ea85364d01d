"""The modules that a learner holds, sharded over its ranks, and the optimiser of their weights.

AdamW works in float32 at any precision of the parameters. A step of 1e-6 on a bfloat16 weight of
0.01 is a fortieth of the distance to the next bfloat16 number, so adding it there would lose it,
and all training. Parameters of a lower precision therefore have a float32 copy, in which gradients
of micro-batches add up and steps are taken.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from algorithms.base import Needs
from experiments.config.schema import TrainConfig
from experiments.learner.batching import Tokens, map_micro_batches
from experiments.learner.forward import Critic, scalar_head, score, token_hidden, values_of
from experiments.policy.loading import critic_backbone, load_weights, own_copy, reference_of
from experiments.policy.lora import load_trained, rate_factor, trained, trained_state
from experiments.policy.policy import Policy, RankGroup, as_shard, whole
from experiments.policy.snapshots import PastPolicies

# Few, since norms drift over a run: in 120 batches of SPO, RAFT, PPO and its critic a quantile of
# 0.9 clipped 8 to 19 % of the steps with 20 norms, 3 to 30 % with 100. The first steps need no rule
# of their own: their quantile is of the norms before them, and the learning rate is warming up.
WINDOW = 20
GROWTH = 2000  # steps without an overflow after which a loss scale doubles
NORMS = ("grad_norm", "critic_grad_norm")  # of the parameter groups, in their order


@dataclass
class Modules:
    """The trained policy and, if the algorithm needs them, reference, critic and past weights.

    They give log-probs and values without gradient, and the state of all that training changes.
    """

    policy: Policy
    needs: Needs
    config: TrainConfig
    ranks: RankGroup
    keep_reference: bool  # also if the loss needs none

    def __post_init__(self) -> None:
        policy, needs, config, ranks = self.policy, self.needs, self.config, self.ranks
        # A reference that moves is a copy of its own, and leaves the initial policy as it is.
        kept = self.keep_reference or config.missing_logprobs == "reference"
        kept |= needs.reference and config.reference_every is None
        self.reference = self._sharded_early(reference_of(policy)) if kept else None
        self.critic: Critic | None = None
        self.value_head: nn.Linear | None = None
        if needs.critic in ("separate", "log_probs"):
            of_tokens = config.temperature if needs.critic == "log_probs" else None
            self.critic = Critic(critic_backbone(policy), of_tokens)
            if policy.adapter is None:
                ranks.shard(self.critic.backbone, self.critic)
        elif needs.critic == "shared":
            self.value_head = scalar_head(policy)
        moving = ("reference",) if config.reference_every else ()
        self.past = PastPolicies(policy, self._copy, (*needs.copies, *moving))
        for held in (self.reference, *self.past.policies.values(), policy):
            if held is not None:
                ranks.shard(held)
        if self.critic is not None:
            ranks.shard(self.critic.backbone, self.critic)
        if self.value_head is not None:
            ranks.shard_head(self.value_head)

    def _copy(self, name: str) -> Policy:
        copied = own_copy(self.policy)
        if self.needs.copy_of and name in self.needs.copies:
            load_weights(copied, self.needs.copy_of)
        return self._sharded_early(copied)

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


# The optimiser


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


class LossScale:
    """The factor on the loss of a float16 model, in which gradients below 6e-8 would be 0.

    A power of two, as in torch.amp.GradScaler: halved at each step whose gradients overflow, which
    is skipped, and doubled after GROWTH steps without. In other precisions it stays 1. It starts
    at 2^12 instead of 2^16: at 2^16 small models skipped their first steps, which are one in a
    hundred of a run, and at 2^12 no gradient above 1.5e-11 is 0.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.active, self.steps = dtype == torch.float16, 0
        self.value = 2.0**12 if self.active else 1.0

    def unscale(self, groups: Sequence[dict[str, Any]]) -> None:
        """Divide the gradients of each parameter group by it."""
        for parameter in (p for group in groups for p in group["params"] if self.active):
            if parameter.grad is not None:
                parameter.grad /= self.value

    def overflows(self, norms: Iterable[Tensor]) -> bool:
        """Whether to skip the step of these norms, which are the same on all ranks; adapts to it.

        At a scale of 1 gradients that are not finite have another reason.
        """
        skipped = self.value > 1 and not all(math.isfinite(float(norm)) for norm in norms)
        self.steps = 0 if skipped else self.steps + self.active
        if skipped:
            self.value /= 2
        elif self.steps == GROWTH:
            self.value, self.steps = self.value * 2, 0
        return skipped

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, and the steps since it last changed."""
        return {"value": self.value, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        vars(self).update(state)


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
                if 0 < float(norm) < math.inf:
                    self.past[name].append(float(norm))
        return metrics

    def state_dict(self) -> dict[str, list[float]]:
        """Return the norms of the last steps; none with a fixed bound."""
        return {name: list(norms) for name, norms in self.past.items() if norms}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Restore what `state_dict` returned."""
        for name, norms in state.items():
            self.past[name] = deque(norms, maxlen=WINDOW)
