"""The learner: the trained policy, its optimiser, reference and critic, and a batch's updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from algorithms.base import Algorithm, Batch, PolicyOutput
from algorithms.tensors import Entropy
from experiments.config.schema import TrainConfig
from experiments.learner.batching import (
    are_whole_groups,
    map_micro_batches,
    pack,
    plan_micro_batches,
    rank_micro_batches,
    step_rows,
    trim,
)
from experiments.learner.behaviour_logprobs import behaviour_logprobs, with_current_weights
from experiments.learner.forward import Critic, Tokens, scalar_head, score, token_hidden, values_of
from experiments.learner.metrics import (
    batch_metrics,
    common_metrics,
    critic_metrics,
    gradient_weights,
    group_metrics,
    step_metrics,
)
from experiments.learner.norm_clipping import NormClipping
from experiments.learner.optimiser import Float32AdamW, learning_rate_factor, parameter_groups
from experiments.policy.fsdp import whole_tree
from experiments.policy.loading import critic_backbone, own_copy, reference_of
from experiments.policy.lora import load_trained, trained_state
from experiments.policy.past_policies import MovingAverage, PastPolicies
from experiments.policy.policy import Policy
from experiments.run_dir import checkpoints
from experiments.run_dir.budget import Ledger
from experiments.run_dir.interrupts import defer_interrupts
from experiments.runtime import SINGLE_RANK, RankGroup
from experiments.sample import Sample

if TYPE_CHECKING:
    from experiments.rollout.initial_values import InitialValues


class Learner:
    """The trained policy, its optimiser and, if the algorithm needs them, reference and critic."""

    def __init__(
        self,
        policy: Policy,
        pad: int,
        algorithm: Algorithm,
        config: TrainConfig,
        steps: int,
        ledger: Ledger,
        keep_reference: bool = False,
        seed: int = 0,
        ranks: RankGroup = SINGLE_RANK,
    ) -> None:
        """`keep_reference`: the initial policy also if the loss needs none, for evaluations.

        `pad`: the padding token. `steps`: batches of the run, for the learning-rate schedule.
        `seed`: of the order of a batch's groups if the batch takes several steps.
        `ranks`: the processes that share the work, each with a shard of all modules.
        """
        self.policy, self.model = policy, policy.model
        self.pad, self.algorithm, self.config = pad, algorithm, config
        self.ledger, self.seed, self.ranks = ledger, seed, ranks
        needs = algorithm.needs
        # Whether the critic learns apart from the policy, and whether it has already done so for
        # the present batch, before the batch's only step.
        self.critic_alone = needs.critic == "separate" and needs.critic_apart
        self.critic_is_ahead = False
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
        average = None if needs.average is None else self._sharded_early(own_copy(policy))
        self.past = PastPolicies(
            lambda: self._sharded_early(own_copy(policy)), needs, config.reference_every
        )
        self._shard([self.reference, average, *self.past.policies().values(), policy])
        groups = parameter_groups(algorithm.config, policy, self.critic, self.value_head)
        self.optimiser = Float32AdamW(groups, config.weight_decay)
        self.clipping = NormClipping(config)
        self.average: MovingAverage | None = None
        if average is not None and needs.average is not None:
            self.average = MovingAverage(average, policy, needs.average)
        self.rates = [rate for _, rate in groups]
        self.factor = learning_rate_factor(config, steps)
        self.batches = 0

    def _sharded_early(self, copied: Policy) -> Policy:
        """Shard a copy at once, so that no two copies are whole at a time.

        Adapted policies share one set of base weights only as long as none of them is sharded.
        """
        if self.policy.adapter is None:
            self.ranks.shard(copied)
        return copied

    def _shard(self, policies: Iterable[Policy | None]) -> None:
        """Shard all modules that are not sharded yet."""
        for policy in policies:
            if policy is not None:
                self.ranks.shard(policy)
        if self.critic is not None:
            self.ranks.shard(self.critic.backbone, self.critic)
        if self.value_head is not None:
            self.ranks.shard_head(self.value_head)

    def state_dict(self, keep: bool = True) -> dict[str, Any]:
        """Return all that training changes; whole tensors are not copied, shards are made whole.

        A collective of all ranks. A rank without `keep` contributes its shards and gets None.
        """
        modules = {name: trained_state(module) for name, module in self._trained().items()}
        counts = {"batches": self.batches, "version": self.policy.version}
        copies: dict[str, Any] = {}
        if self.past:
            copies["earlier"] = self.past.state_dict()
        if self.average:
            copies["average"] = self.average.state_dict()
        if norms := self.clipping.state_dict():
            copies["norms"] = norms
        state = {"modules": modules, "optimiser": self.optimiser.state_dict(), **copies, **counts}
        return whole_tree(state, keep)

    def load_from(self, checkpoint: Path) -> None:
        """Restore the state of that checkpoint."""
        self.load_state_dict(checkpoints.tensors(checkpoint)["learner"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, module in self._trained().items():
            load_trained(module, state["modules"][name])
        self.optimiser.load_full_state(state["optimiser"])
        if self.average:
            self.average.load_state_dict(state["average"])
        self.past.load_state_dict(state.get("earlier", {}))
        self.clipping.load_state_dict(state.get("norms", {}))
        self.batches = state["batches"]
        self.policy.version = state["version"]

    def _trained(self) -> dict[str, nn.Module]:
        modules = {"model": self.model, "critic": self.critic, "value_head": self.value_head}
        return {name: module for name, module in modules.items() if module is not None}

    def update(
        self, samples: Sequence[Sample], group_size: int, initial_values: InitialValues | None
    ) -> dict[str, float]:
        """Take the optimiser steps on whole groups of samples → metrics, means over the steps.

        There are `train.epochs` passes of `train.minibatches` steps each. Log-probs of the rollout
        policy and the reference, and the critic's values, are computed once, before the first step.
        Initial values come after the reference's log-probs, which the online estimate reads.
        """
        self.optimiser.zero_grad(set_to_none=True)
        tokens, batch, metrics = self._assemble(samples, group_size)
        if self.algorithm.needs.initial_value != "none":
            batch = replace(batch, q0=self._initial_values(samples, batch, initial_values))
        metrics |= group_metrics(batch)
        steps: list[dict[str, float]] = []
        kept_rows = 0
        with defer_interrupts():
            if not self.algorithm.needs.policy:
                batch = self.algorithm.prepare(batch)
                metrics |= critic_metrics(self.algorithm, batch)
            for rows, part in self._mini_batches(tokens, batch):
                if steps:
                    self.optimiser.zero_grad(set_to_none=True)
                kept = rows[part.keep]
                kept_rows += len(kept)
                if len(kept):
                    steps.append(self._step(tokens, part.only_kept(), kept))
                    self.critic_is_ahead = False
            self.batches += 1
        metrics |= {"kept_share": kept_rows / len(samples) / self.config.epochs}
        return metrics | batch_metrics(steps)

    def _initial_values(
        self, samples: Sequence[Sample], batch: Batch, initial_values: InitialValues | None
    ) -> Tensor:
        """Return the prompts' soft values on every rank; only rank 0 has `initial_values`."""

        def compute() -> Tensor:
            if initial_values is None:
                raise RuntimeError("this algorithm needs initial values")
            return initial_values.compute(samples, batch)

        return self.ranks.broadcast(compute)

    def _mini_batches(self, tokens: Tokens, batch: Batch) -> Iterator[tuple[Tensor, Batch]]:
        """Yield (rows of the batch, those rows prepared) for each optimiser step, groups whole.

        The batch is prepared, unless the algorithm reads the policy's log-probs before the update.
        Such an algorithm prepares each step anew: its results (a group's soft value, bounds of the
        clip) must be of the present policy.
        """
        each_step = self.algorithm.needs.policy
        for rows in step_rows(batch, self.config, self.seed, self.batches):
            part = replace(batch.rows(rows), sequence_share=1.0, token_share=1.0)
            in_step = each_step and self._can_prepare_in_step(tokens.rows(rows), part)
            if each_step and not in_step:
                part = replace(part, policy_logp=self._logp_of_rows(self.policy, tokens, rows))
            if self.average:
                proximal = self._logp_of_rows(self.average.policy, tokens, rows)
                part = replace(part, proximal_logp=proximal)
            yield rows, self.algorithm.prepare(part) if each_step and not in_step else part

    def _logp_of_rows(self, policy: Policy, tokens: Tokens, rows: Tensor) -> Tensor:
        """Return log-probs of these rows, (rows, time) with the whole batch's width."""
        logp = self._frozen(policy, tokens.rows(rows))
        return nn.functional.pad(logp, (0, tokens.mask.shape[1] - logp.shape[1]))

    def _can_prepare_in_step(self, tokens: Tokens, batch: Batch) -> bool:
        """Whether a step can prepare each micro-batch from the forward pass that it learns from.

        That pass gives the policy's log-probs before the step. If groups are whole and independent,
        a pass without gradient would compute the same bits again.
        """
        if not (self.algorithm.needs.by_group and bool(batch.keep.all())):
            return False
        parts = plan_micro_batches(tokens, self.config, self.ranks)
        return all(are_whole_groups(rows, batch.group_size) for rows in parts)

    def _assemble(
        self, samples: Sequence[Sample], group_size: int
    ) -> tuple[Tokens, Batch, dict[str, float]]:
        """Return the tokens, the batch before `prepare`, and metrics of the correction."""
        device, needs = self.model.device, self.algorithm.needs
        tokens = pack(samples, self.pad, device)
        logps = behaviour_logprobs(samples, tokens, self.config, self.logp, self.ref_logp)
        reference = self.past.reference(self.policy, self.batches)
        precedent = self.past.precedent(self.batches)
        truncated = torch.tensor([sample.truncated for sample in samples], device=device)
        batch = Batch(
            mask=tokens.mask,
            rewards=torch.tensor([sample.reward for sample in samples], device=device),
            keep=~truncated if self.config.truncation == "mask" else torch.ones_like(truncated),
            online=torch.tensor([not sample.offline for sample in samples], device=device),
            fresh=torch.tensor([sample.fresh for sample in samples], device=device),
            group_size=group_size,
            batches=self.batches,
            behaviour_logp=logps.behaviour,
            correction=logps.correction,
            rollout_logp=logps.rollout,
            ref_logp=self.ref_logp(tokens, reference) if needs.reference else None,
            start_logp=self.logp(tokens) if needs.start else None,
            precedent_logp=None if precedent is None else self.ref_logp(tokens, precedent),
        )
        self.past.remember(self.policy)
        if needs.critic != "none":
            once = self.config.minibatches == self.config.epochs == 1 and bool(batch.keep.all())
            self.critic_is_ahead = once and self.critic_alone
            ahead = self.critic_is_ahead
            values = self._learn_values(tokens, batch) if ahead else self._values(tokens)
            batch = replace(batch, values=values)
        return tokens, batch, logps.metrics

    def logp(self, tokens: Tokens) -> Tensor:
        """Return the policy's log-probs at the training temperature, (batch, time), no gradient."""
        return self._frozen(self.policy, tokens)

    def ref_logp(self, tokens: Tokens, policy: Policy | None = None) -> Tensor:
        """Return the reference's log-probs at the training temperature, (batch, time).

        `policy`: the reference if it is not the initial policy.
        """
        reference = self.reference if policy is None else policy
        if reference is None:
            raise RuntimeError("this learner keeps no reference policy")
        with self.ledger.phase("reference"):
            return self._frozen(reference, tokens)

    @torch.no_grad()
    def _frozen(self, policy: Policy, tokens: Tokens) -> Tensor:
        """Return a policy's log-probs, (batch, time), without gradient."""
        tokens = tokens.to(self.model.device)  # from another rank they come in host memory

        def logp(rows: Tensor, _: bool) -> Tensor:
            part = tokens.rows(rows)
            return policy.run(score, part, self.config.temperature, entropy="none").logp

        return map_micro_batches(logp, tokens, self.config, self.ranks)

    @torch.no_grad()
    def _values(self, tokens: Tokens) -> Tensor:
        """Return the critic's values, (batch, time), without gradient."""

        def values(rows: Tensor, _: bool) -> Tensor:
            part = tokens.rows(rows)
            if self.value_head is None:
                return self._critic(part)
            hidden = self.policy.run(token_hidden, part)
            return values_of(self.value_head, hidden, part.mask)

        return map_micro_batches(values, tokens, self.config, self.ranks)

    def _critic(self, tokens: Tokens) -> Tensor:
        if self.critic is None:
            raise RuntimeError("this learner has no separate critic")
        return self.critic(tokens)

    def _learn_values(self, tokens: Tokens, batch: Batch) -> Tensor:
        """Return the critic's values, (batch, time), and add its gradients in the same pass.

        Before a batch's only step, the old values are those that the critic learns from.
        """

        def values(rows: Tensor, counts: bool) -> Tensor:
            part = tokens.rows(rows)
            now = self._critic(part)
            micro = replace(trim(batch.rows(rows), part.mask.shape[1]), values=now.detach())
            self._critic_backward(now, self.algorithm.prepare(micro), counts)
            return now.detach()

        return map_micro_batches(values, tokens, self.config, self.ranks)

    def _critic_backward(self, values: Tensor, batch: Batch, counts: bool) -> None:
        self._backward(self.algorithm.critic_loss(values, batch), counts)

    def _backward(self, loss: Tensor, counts: bool) -> None:
        (loss if counts else loss * 0).backward()
        self.optimiser.take_gradients()

    def _output(self, tokens: Tokens, batch: Batch, counts: bool) -> PolicyOutput:
        """Return the policy's output on these rows, with the critic's values if there is one."""
        # A critic that can learn apart frees its activations before those of the policy are held.
        values: Tensor | None = None
        if self.critic_is_ahead:
            values = batch.values
        elif self.critic is not None:
            values = self.critic(tokens)
            if self.critic_alone:
                self._critic_backward(values, batch, counts)
                values = values.detach()
        entropy: Entropy = "graph" if self.algorithm.needs.entropy_graph else "value"
        temperature = self.config.temperature
        output = self.policy.run(score, tokens, temperature, self.value_head, entropy)
        return output if values is None else replace(output, values=values)

    def _step(self, tokens: Tokens, batch: Batch, kept: Tensor) -> dict[str, float]:
        """Accumulate gradients over micro-batches, then take one step → its metrics."""
        sums = self._accumulate(tokens, batch, kept)
        totals = {name: self.ranks.sum(value) for name, value in sums.items()}
        policy_waits = self.batches < self.algorithm.needs.critic_warmup
        result = step_metrics(totals, self.clipping.clip(self.optimiser.param_groups, policy_waits))
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.factor(self.batches)
        result["learning_rate"] = self.optimiser.param_groups[0]["lr"]
        if policy_waits:
            for parameter in self.optimiser.param_groups[0]["params"]:
                parameter.grad = None
        self.optimiser.step()
        self.policy.version += 1
        if self.average:
            self.average.follow(self.policy)
        return result

    def _accumulate(self, tokens: Tokens, batch: Batch, kept: Tensor) -> dict[str, Tensor]:
        """Add this rank's gradients of a step → sums of its metrics."""
        prepare = self.algorithm.needs.policy and batch.policy_logp is None
        totals: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=batch.mask.device))
        online, fresh = int(batch.online.sum()), int(batch.fresh.sum())
        offline = len(batch.online) - online
        for rows, counts in rank_micro_batches(tokens.rows(kept), self.config, self.ranks):
            part = tokens.rows(kept[rows])
            micro = trim(batch.rows(rows), part.mask.shape[1])
            output = self._output(part, micro, counts)
            if self.config.correction == "truncated_current":
                micro = with_current_weights(micro, output.logp, self.config)
            if prepare:
                micro = self.algorithm.prepare(replace(micro, policy_logp=output.logp.detach()))
            output.logp.retain_grad()
            loss, metrics = self.algorithm.loss(output, micro)
            self._backward(loss, counts)
            metrics |= gradient_weights(output, micro, self.algorithm.reward_high)
            metrics |= common_metrics(output, micro, online, fresh, offline)
            metrics["loss"] = loss.detach()
            for name, value in metrics.items():
                totals[name] += value.detach() if counts else 0
        return totals
