"""An objective's gradient on given samples, from the learner of runs, and what it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Batch, PolicyOutput
from experiments.config.composition import config_of
from experiments.learner.batching import rank_micro_batches
from experiments.learner.forward import Tokens
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.policy.policy import Policy, copy_weights
from experiments.rollout.initial_values import InitialValues
from experiments.run_dir.ledger import Ledger
from experiments.sample import Sample

PARTS = ("accepted", "rejected", "others")
GROUPS = ("all right", "all wrong", "half right")


class Probe(Learner):
    """A learner that keeps ∂L/∂log π of every response of a step."""

    slopes: Tensor  # (batch, time)
    known: dict[str, Tensor]  # log-probs of the same batch that another objective has computed

    def logp(self, tokens: Tokens) -> Tensor:
        return self._known("policy", lambda: super(Probe, self).logp(tokens))

    def ref_logp(self, tokens: Tokens, policy: Policy | None = None) -> Tensor:
        return self._known("reference", lambda: super(Probe, self).ref_logp(tokens, policy))

    def _known(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        if name not in self.known:
            self.known[name] = compute()
        return self.known[name]

    def _accumulate(self, tokens: Tokens, batch: Batch, kept: Tensor) -> dict[str, Tensor]:
        parts = [rows for rows, _ in rank_micro_batches(tokens.rows(kept), self.config, self.ranks)]
        self._outputs: list[PolicyOutput] = []
        metrics = super()._accumulate(tokens, batch, kept)
        for rows, output in zip(parts, self._outputs, strict=True):
            if output.logp.grad is not None:
                self.slopes[kept[rows], : output.logp.shape[1]] = output.logp.grad
        self.slopes.masked_fill_(~tokens.mask, 0.0)
        return metrics

    def _output(self, tokens: Tokens, batch: Batch, counts: bool) -> PolicyOutput:
        output = super()._output(tokens, batch, counts)
        output.logp.retain_grad()
        self._outputs.append(output)
        return output


@dataclass(frozen=True)
class Effect:
    """What an objective does with one batch."""

    gradient: Tensor  # (parameters,) of the policy, before clipping
    pushes: Tensor  # (batch,) Σ_t −∂L/∂log π(a_t)
    weights: Tensor  # (batch,) Σ_t |∂L/∂log π(a_t)|


@dataclass(frozen=True)
class Bench:
    """What the objectives of a situation share that have the same reference."""

    reference: Policy
    rollout: Policy
    policy: Policy  # the one that is trained
    pad: int
    ledger: Ledger

    def effect(
        self,
        algorithm: Algorithm,
        samples: Sequence[Sample],
        group_size: int,
        initial_values: InitialValues | None = None,
        known: dict[str, Tensor] | None = None,
    ) -> Effect:
        """Return the effect of an optimiser step on these samples.

        `known`: log-probs of the same responses, by the policies' names; it is filled.
        """
        trained = loading.own_copy(self.reference)
        trained.model.requires_grad_(True)
        # One micro-batch; the rate does not matter, since the learner is dropped after its step.
        default = config_of([]).train
        config = replace(default, micro_batch=len(samples), max_grad_norm=None, warmup_steps=0)
        learner = Probe(trained, self.pad, algorithm, config, 1, self.ledger)
        copy_weights(self.policy, learner.policy)
        if learner.modules.average:
            copy_weights(self.rollout, learner.modules.average.policy)
        learner.batches = algorithm.needs.critic_warmup  # from here on the policy learns
        learner.known = {} if known is None else known
        learner.slopes = torch.zeros(len(samples), max(len(sample.tokens) for sample in samples))
        parameters = learner.optimiser.param_groups[0]["params"]
        gradient = torch.zeros(sum(p.numel() for p in parameters))

        def keep(*_: Any) -> None:
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            gradient.copy_(torch.cat([part.flatten() for part in parts]))

        learner.optimiser.register_step_pre_hook(keep)
        learner.update(samples, group_size, initial_values)
        return Effect(gradient, -learner.slopes.sum(-1), learner.slopes.abs().sum(-1))


def weight_shares(weights: Tensor, samples: Sequence[Sample]) -> dict[str, float]:
    """Return the shares of the weights on accepted, rejected and others' responses.

    Others are offline programs. NaN if there is no weight.
    """
    kinds = [PARTS.index("others") if s.offline else int(not s.accepted) for s in samples]
    sums = torch.zeros(len(PARTS), dtype=torch.float64)
    sums.index_add_(0, torch.tensor(kinds), weights.double())
    total = float(sums.sum())
    return {
        part: float(s) / total if total else math.nan for part, s in zip(PARTS, sums, strict=True)
    }


def group_pushes(found: Effect, samples: Sequence[Sample]) -> dict[str, float]:
    """Return the mean push on accepted and rejected responses of each kind of hand-made group.

    In units of the objective's mean weight of a response over all of them. `size` is the mean
    weight itself: groups that are pushed apart within have a size and a mean push of about 0.
    """
    scale = float(found.weights.mean()) or math.nan
    result: dict[str, float] = {}
    kind = torch.arange(len(samples)) * len(GROUPS) // len(samples)
    accepted = torch.tensor([sample.accepted for sample in samples])
    for number, name in enumerate(GROUPS):
        for part, rows in (("accepted", accepted), ("rejected", ~accepted)):
            chosen = (kind == number) & rows
            if chosen.any():
                result[f"{name}, {part}"] = float(found.pushes[chosen].mean()) / scale
                result[f"{name}, {part}, size"] = float(found.weights[chosen].mean()) / scale
    return result


def gram(vectors: Sequence[Tensor], chunk: int = 1 << 16) -> Tensor:
    """Return the dot products of all pairs, (n, n) float64, added up in float64."""
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for start in range(0, len(vectors[0]), chunk):
        part = torch.stack([vector[start : start + chunk] for vector in vectors]).double()
        total += part @ part.T
    return total


def cosines(products: Tensor) -> Tensor:
    """Return the cosines of a `gram`; NaN for vectors of length 0."""
    norms = products.diagonal().sqrt()
    return products / norms.outer(norms)
