"""The learner: the trained policy, its optimiser, reference and critic, and a batch's updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from algorithms.base import Algorithm, Batch, PolicyOutput
from algorithms.logprobs import Entropy
from experiments.config.schema import TrainConfig
from experiments.learner import batching, metrics
from experiments.learner.batching import Tokens
from experiments.learner.costs import PassCosts
from experiments.learner.forward import score
from experiments.learner.modules import (
    NORMS,
    Float32AdamW,
    LossScale,
    Modules,
    NormClipping,
    learning_rate_factor,
    parameter_groups,
)
from experiments.policy.policy import SINGLE_RANK, Policy, RankGroup, whole_tree
from experiments.run_dir import checkpoints
from experiments.run_dir.interrupts import defer_interrupts
from experiments.run_dir.ledger import Ledger
from experiments.sample import Sample


class InitialValues(Protocol):
    """The prompts' soft values under the reference, for algorithms that need them."""

    def compute(self, samples: Sequence[Sample], batch: Batch) -> Tensor: ...


@dataclass(eq=False)
class Learner:
    """The trained policy, its optimiser and, if the algorithm needs them, reference and critic."""

    policy: Policy
    pad: int  # the padding token
    algorithm: Algorithm
    config: TrainConfig
    steps: int  # batches of the run, for the learning-rate schedule
    ledger: Ledger
    keep_reference: bool = False  # the initial policy also if the loss needs none, to evaluate
    seed: int = 0  # of the order of a batch's groups if the batch takes several steps
    ranks: RankGroup = SINGLE_RANK  # the processes that share the work, each with a shard

    def __post_init__(self) -> None:
        policy, algorithm, config = self.policy, self.algorithm, self.config
        self.model = policy.model
        needs = algorithm.needs
        self.modules = Modules(policy, needs, config, self.ranks, self.keep_reference)
        # Whether the critic learns apart from the policy, and whether it has already done so for
        # the present batch, before the batch's only step.
        self.critic_alone = self.modules.critic is not None and needs.critic_apart
        self.critic_is_ahead = False
        self.reference = self.modules.reference  # the initial policy, if it is kept
        self.flops = PassCosts(self.modules, self.ledger)
        groups = parameter_groups(
            algorithm.config, policy, self.modules.critic, self.modules.value_head
        )
        self.optimiser = Float32AdamW(groups, config.weight_decay)
        self.clipping, self.scale = NormClipping(config), LossScale(policy.model.dtype)
        self.rates = [rate for _, rate in groups]
        self.factor = learning_rate_factor(config, self.steps)
        self.batches = 0

    def state_dict(self, keep: bool = True) -> dict[str, Any]:
        """Return all that training changes; whole tensors are not copied, shards are made whole.

        A collective of all ranks. A rank without `keep` contributes its shards and gets None.
        """
        state = self.modules.state_dict() | {"optimiser": self.optimiser.state_dict()}
        if norms := self.clipping.state_dict():
            state["norms"] = norms
        if self.scale.active:
            state["loss_scale"] = self.scale.state_dict()
        state |= {"batches": self.batches, "version": self.policy.version}
        return whole_tree(state, keep)

    def load_from(self, checkpoint: Path) -> None:
        """Restore the state of that checkpoint."""
        self.load_state_dict(checkpoints.tensors(checkpoint)["learner"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.modules.load_state_dict(state)
        self.optimiser.load_state_dict(state["optimiser"])
        self.clipping.load_state_dict(state.get("norms", {}))
        self.scale.load_state_dict(state.get("loss_scale", {}))
        self.batches = state["batches"]
        self.policy.version = state["version"]

    def update(
        self, samples: Sequence[Sample], group_size: int, initial_values: InitialValues | None
    ) -> dict[str, float]:
        """Take the optimiser steps on whole groups of samples → metrics, means over the steps.

        There are `train.epochs` passes of `train.minibatches` steps each. Log-probs of the rollout
        policy and the reference, and the critic's values, are computed once, before the first step.
        Initial values come after the reference's log-probs, which the online estimate reads.
        """
        self.optimiser.zero_grad(set_to_none=True)
        tokens, batch, measured = self._assemble(samples, group_size)
        if self.algorithm.needs.initial_value != "none":
            before, given = batch, initial_values

            def compute() -> Tensor:
                assert given is not None  # on rank 0
                return given.compute(samples, before)

            batch = replace(batch, q0=self.ranks.broadcast(compute))
        measured |= metrics.group_metrics(batch)
        steps: list[dict[str, float]] = []
        kept_rows = 0
        self.ledger.activity.expect(len(samples) * self.config.epochs, "responses")
        with defer_interrupts():
            if not self.algorithm.needs.policy:
                batch = self.algorithm.prepare(batch)
                if pair := self.algorithm.values_and_outcomes(batch):
                    measured["value/explained_variance"] = metrics.explained_variance(*pair)
            for rows, part in self._mini_batches(tokens, batch):
                if steps:
                    self.optimiser.zero_grad(set_to_none=True)
                kept = rows[part.keep]
                kept_rows += len(kept)
                for sample in (samples[row] for row in kept.tolist()):
                    if sample.origin.source == "dataset":
                        self.ledger.counts.offline_accepted += sample.accepted
                        self.ledger.counts.offline_rejected += not sample.accepted
                if len(kept):
                    steps.append(self._step(tokens, part.only_kept(), kept))
                    self.critic_is_ahead = False
            self.batches += 1
        measured |= {"kept_share": kept_rows / len(samples) / self.config.epochs}
        return measured | metrics.batch_metrics(steps)

    def _mini_batches(self, tokens: Tokens, batch: Batch) -> Iterator[tuple[Tensor, Batch]]:
        """Yield (rows of the batch, those rows prepared) for each optimiser step, groups whole.

        The batch is prepared, unless the algorithm reads the policy's log-probs before the update.
        Such an algorithm prepares each step anew: its results (a group's soft value, bounds of the
        clip) must be of the present policy.
        """
        needs = self.algorithm.needs

        def logp_of_rows(policy: Policy, rows: Tensor) -> Tensor:
            part = tokens.rows(rows)
            self.flops.scored(part, policy)
            logp = self.modules.logp(policy, part)
            return nn.functional.pad(logp, (0, tokens.mask.shape[1] - logp.shape[1]))

        def earlier_logp(rows: Tensor, name: str) -> Tensor:
            return logp_of_rows(self.modules.past.policies[name], rows)

        for rows in batching.step_rows(batch, self.config, self.seed, self.batches):
            part = batch.rows(rows).as_whole()
            given = (tokens.rows(rows), part, self.config, self.ranks)
            now = needs.policy and not batching.can_prepare_in_step(needs, *given)
            if now:
                part = replace(part, policy_logp=logp_of_rows(self.policy, rows))
            part = self.algorithm.before_step(part, partial(earlier_logp, rows))
            yield rows, self.algorithm.prepare(part) if now else part

    def _assemble(
        self, samples: Sequence[Sample], group_size: int
    ) -> tuple[Tokens, Batch, dict[str, float]]:
        """Return the tokens, the batch before `prepare`, and metrics of the correction."""
        needs, past = self.algorithm.needs, self.modules.past
        every = self.config.reference_every
        tokens = batching.pack(samples, self.pad, self.model.device)
        batch = batching.judged_batch(samples, tokens.own, group_size, self.config, self.batches)
        batch, measured = batching.with_behaviour(
            batch, samples, tokens, self.config, self.logp, self.ref_logp
        )
        if needs.step_values:
            batch = batching.with_step_values(batch, samples)
        if every and self.batches % every == 0:
            past.keep("reference")

        def logp(name: str) -> Tensor:
            if name == "policy":
                return self.logp(tokens)
            return self.ref_logp(tokens, past.policies[name])

        batch = self.algorithm.before_batch(batch, logp, past.keep)
        if needs.reference and batch.ref_logp is None:
            ref_logp = logp("reference") if every else self.ref_logp(tokens)
            batch = replace(batch, ref_logp=ref_logp)
        if needs.critic != "none":
            once = self.config.minibatches == self.config.epochs == 1 and bool(batch.keep.all())
            self.critic_is_ahead = once and self.critic_alone
            if self.critic_is_ahead:
                values = self._learn_values(tokens, batch)
            else:
                self.flops.valued(tokens)
                values = self.modules.values(tokens)
            batch = replace(batch, values=values)
        return tokens, batch, measured

    def logp(self, tokens: Tokens) -> Tensor:
        """Return the policy's log-probs at the training temperature, (batch, time), no gradient."""
        self.flops.scored(tokens, self.policy)
        return self.modules.logp(self.policy, tokens)

    def ref_logp(self, tokens: Tokens, policy: Policy | None = None) -> Tensor:
        """Return the reference's log-probs at the training temperature, (batch, time).

        `policy`: the reference if it is not the initial policy.
        """
        reference = self.reference if policy is None else policy
        if reference is None:
            raise RuntimeError("this learner keeps no reference policy")
        self.flops.scored(tokens, reference)
        activity = self.ledger.activity
        with self.ledger.phase("reference"):
            activity.expect(len(tokens.mask), "responses")
            return self.modules.logp(reference, tokens, activity.advance)

    def _learn_values(self, tokens: Tokens, batch: Batch) -> Tensor:
        """Return the critic's values, (batch, time), and add its gradients in the same pass.

        Before a batch's only step, the old values are those that the critic learns from.
        """
        critic = self.modules.critic
        assert critic is not None
        self.flops.trained(tokens, critic=True)

        def values(rows: Tensor, counts: bool) -> Tensor:
            part = tokens.rows(rows)
            now = critic(part)
            micro = replace(batching.micro_batch(batch, rows, now.shape[1]), values=now.detach())
            self._backward(self.algorithm.critic_loss(now, micro), counts)
            return now.detach()

        return batching.map_micro_batches(values, tokens, self.config, self.ranks)

    def _backward(self, loss: Tensor, counts: bool) -> None:
        (loss * (self.scale.value if counts else 0)).backward()
        self.optimiser.take_gradients()

    def _output(self, tokens: Tokens, batch: Batch, counts: bool) -> PolicyOutput:
        """Return the policy's output on these rows, with the critic's values if there is one."""
        # A critic that can learn apart frees its activations before those of the policy are held.
        values: Tensor | None = None
        if self.critic_is_ahead:
            values = batch.values
        elif self.modules.critic is not None:
            values = self.modules.critic(tokens)
            if self.critic_alone:
                self._backward(self.algorithm.critic_loss(values, batch), counts)
                values = values.detach()
        entropy: Entropy = "graph" if self.algorithm.needs.entropy_graph else "value"
        temperature = self.config.temperature
        output = self.policy.run(score, tokens, temperature, self.modules.value_head, entropy)
        return output if values is None else replace(output, values=values)

    def _step(self, tokens: Tokens, batch: Batch, kept: Tensor) -> dict[str, float]:
        """Accumulate gradients over micro-batches, then take one step → its metrics.

        A step whose float16 gradients overflow is skipped: it changes no weight, is counted among
        the optimiser's steps, and has no gradient norm.
        """
        policy_waits = self.batches < self.algorithm.needs.critic_warmup
        learned_from = tokens.rows(kept)
        self.flops.trained(learned_from)
        if not self.critic_is_ahead:
            self.flops.trained(learned_from, critic=True)
        sums = self._accumulate(tokens, batch, kept)
        if policy_waits:  # its gradient moves nothing
            for name in metrics.GRADIENT_WEIGHTS:
                del sums[name]
        totals = {name: self.ranks.sum(value) for name, value in sums.items()}
        self.scale.unscale(self.optimiser.param_groups)
        clipping = self.clipping.clip(self.optimiser.param_groups, policy_waits)
        scale = self.scale.value
        skipped = self.scale.overflows(clipping[name] for name in NORMS if name in clipping)
        result = metrics.step_metrics(totals, {} if skipped else clipping)
        if self.scale.active:
            result |= {"loss_scale": scale, "step_skipped": float(skipped)}
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.factor(self.batches)
        result["learning_rate"] = self.optimiser.param_groups[0]["lr"]
        if policy_waits:
            for parameter in self.optimiser.param_groups[0]["params"]:
                parameter.grad = None
        if not skipped:
            self.optimiser.step()
        self.policy.version += 1
        self.algorithm.after_step(self.modules.past.average)
        return result

    def _accumulate(self, tokens: Tokens, batch: Batch, kept: Tensor) -> dict[str, Tensor]:
        """Add this rank's gradients of a step → sums of its metrics."""
        prepare = self.algorithm.needs.policy and batch.policy_logp is None
        totals: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=batch.mask.device))
        totals[metrics.LOG_WEIGHTS] = torch.zeros(len(kept), device=batch.mask.device)
        online, fresh = int(batch.online.sum()), int(batch.fresh.sum())
        offline = len(batch.online) - online
        planned = batching.plan_micro_batches(tokens.rows(kept), self.config, self.ranks)
        for rows, counts in self.ranks.share(planned):
            part = tokens.rows(kept[rows])
            micro = batching.micro_batch(batch, rows, part.mask.shape[1])
            output = self._output(part, micro, counts)
            if self.config.correction == "truncated_current":
                micro = batching.with_current_weights(micro, output.logp, self.config)
            if prepare:
                micro = self.algorithm.prepare(replace(micro, policy_logp=output.logp.detach()))
            output.logp.retain_grad()
            loss, measured = self.algorithm.loss(output, micro)
            self._backward(loss, counts)
            weights = metrics.gradient_weights(output, micro)
            measured |= {name: value / self.scale.value for name, value in weights.items()}
            measured |= metrics.common_metrics(output, micro, online, fresh, offline)
            measured["loss"] = loss.detach()
            of_rows = measured.pop(metrics.LOG_WEIGHTS)
            if counts:
                totals[metrics.LOG_WEIGHTS][rows] = of_rows
            for name, value in measured.items():
                totals[name] += value.detach() if counts else 0
            self.ledger.activity.advance(len(rows) * self.ranks.size)
        return totals
