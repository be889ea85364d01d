"""The model being trained, what its algorithm needs beside it, and the steps of one batch."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from algorithms.base import Algorithm, Batch, PolicyOutput
from experiments.config.schema import TrainConfig
from experiments.learner.batching import (
    by_parts,
    my_pieces,
    narrow,
    orders,
    pack,
    pieces,
    whole_groups,
)
from experiments.learner.behavior_logprobs import who_wrote
from experiments.learner.forward import Critic, Tokens, scalar_head, score, token_hidden, values_of
from experiments.learner.metrics import common_metrics, whole_step
from experiments.learner.optimiser import Float32AdamW, learning_rate_factor, parameter_groups
from experiments.policy.fsdp import optimiser_part, whole, whole_tree
from experiments.policy.loading import critic_backbone, own_copy, reference_of
from experiments.policy.lora import load_trained, trained_state
from experiments.policy.past_policies import MovingAverage, PastPolicies
from experiments.policy.policy import Policy
from experiments.rollout.initial_values import InitialValues
from experiments.run_dir import checkpoints
from experiments.run_dir.budget import Ledger
from experiments.run_dir.interrupts import defer_interrupts
from experiments.runtime import SINGLE_RANK, RankGroup
from experiments.sample import Sample


class Learner:
    """Owns the policy, the optimiser and, where the algorithm needs them, reference and critic."""

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
        """`keep_reference`: also where the loss needs none, to be measured against.

        `seed`: of the order in which a batch's groups come where it is used several times.
        `ranks`: who shares the work, each with a shard of all modules.
        """
        self.policy, self.model = policy, policy.model
        self.pad, self.algorithm, self.config = pad, algorithm, config
        self.ledger, self.seed, self.ranks = ledger, seed, ranks
        needs = algorithm.needs
        # Whether the critic learns apart from the policy; has done so before a batch's only step.
        self.critic_alone = needs.critic == "separate" and needs.critic_apart
        self.critic_is_ahead = False
        keep_reference |= needs.reference or config.missing_logprobs == "reference"
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
        self.past = PastPolicies(lambda: self._sharded_early(own_copy(policy)), needs)
        self._shard([self.reference, average, *self.past.policies().values(), policy])
        groups = parameter_groups(algorithm.config, policy, self.critic, self.value_head)
        self.optimiser = Float32AdamW(groups, config.weight_decay)
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
        """All that training has changed; the tensors are the learner's own, shards made whole.

        All ranks have to ask; one that is not to `keep` them gives its shards and gets None.
        """
        modules = {name: trained_state(module) for name, module in self._trained().items()}
        counts = {"batches": self.batches, "version": self.policy.version}
        copies: dict[str, Any] = {}
        if self.past:
            copies["earlier"] = self.past.state_dict()
        if self.average:
            copies["average"] = self.average.state_dict()
        state = {"modules": modules, "optimiser": self.optimiser.state_dict(), **copies, **counts}
        return whole_tree(state, keep)

    def load_from(self, checkpoint: Path) -> None:
        """Back to what `state_dict` held when that checkpoint was written."""
        self.load_state_dict(checkpoints.tensors(checkpoint)["learner"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        for name, module in self._trained().items():
            load_trained(module, state["modules"][name])
        self.optimiser.load_state_dict(optimiser_part(state["optimiser"], self.optimiser))
        if self.average:
            self.average.load_state_dict(state["average"])
        self.past.load_state_dict(state.get("earlier", {}))
        self.batches = state["batches"]
        self.policy.version = state["version"]

    def _trained(self) -> dict[str, nn.Module]:
        modules = {"model": self.model, "critic": self.critic, "value_head": self.value_head}
        return {name: module for name, module in modules.items() if module is not None}

    def update(
        self,
        samples: Sequence[Sample],
        group_size: int,
        initial_values: InitialValues | None,
    ) -> dict[str, float]:
        """The optimiser steps on whole groups of samples → their metrics, means over the steps.

        `train.epochs` passes of `train.minibatches` steps each. What the writer, the reference and
        the critic say is asked once, before the first: the old policy of PPO's ratio and its old
        values stay those of the start. The initial values come after the reference's log-probs,
        which the online estimate reads.
        """
        self.optimiser.zero_grad(set_to_none=True)
        tokens, batch, metrics = self._assemble(samples, group_size)
        if self.algorithm.needs.initial_value != "none":
            found = self.ranks.broadcast(lambda: initial_values.compute(samples, batch))
            batch = replace(batch, q0=found)
        steps, kept_rows = [], 0
        with defer_interrupts():
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
        for name in dict.fromkeys(name for step in steps for name in step):
            metrics[name] = statistics.fmean(step[name] for step in steps if name in step)
        return metrics

    def _mini_batches(self, tokens: Tokens, batch: Batch) -> Iterator[tuple[Tensor, Batch]]:
        """(rows of the batch, those rows prepared) for each optimiser step, groups whole.

        An algorithm that reads the policy's log-probs before the update prepares each step anew:
        what it sets there (a group's soft value, bounds of the clip) is of the present policy.
        """
        anew = self.algorithm.needs.policy
        if not anew:
            batch = self.algorithm.prepare(batch)
        for rows in orders(batch, self.config, self.seed, self.batches):
            cut = replace(batch.rows(rows), sequence_share=1.0, token_share=1.0)
            if anew and not (in_passing := self._in_passing(tokens.rows(rows), cut)):
                cut = replace(cut, policy_logp=self._before_step(self.policy, tokens, rows))
            if self.average:
                proximal = self._before_step(self.average.policy, tokens, rows)
                cut = replace(cut, proximal_logp=proximal)
            yield rows, self.algorithm.prepare(cut) if anew and not in_passing else cut

    def _before_step(self, policy: Policy, tokens: Tokens, rows: Tensor) -> Tensor:
        """Return log-probs of these rows, (rows, time) with the whole batch's width."""
        logp = self._frozen(policy, tokens.rows(rows))
        return nn.functional.pad(logp, (0, tokens.mask.shape[1] - logp.shape[1]))

    def _in_passing(self, tokens: Tokens, batch: Batch) -> bool:
        """Whether a step can prepare each micro-batch from the pass that it learns from.

        The policy's log-probs before a step are those of its forward pass: where no group is cut
        apart and none needs another, a pass without gradient would tell the same bits again.
        """
        if not (self.algorithm.needs.by_group and bool(batch.keep.all())):
            return False
        parts = pieces(tokens, self.config, self.ranks)
        return all(whole_groups(rows, batch.group_size) for rows in parts)

    def _assemble(
        self, samples: Sequence[Sample], group_size: int
    ) -> tuple[Tokens, Batch, dict[str, float]]:
        """The batch before `prepare`, and what was done to the writer's log-probs, as metrics."""
        device = self.model.device
        tokens = pack(samples, self.pad, device)
        needs = self.algorithm.needs
        written, metrics = who_wrote(samples, tokens, self.config, self.logp, self.ref_logp)
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
            **written,
            ref_logp=self.ref_logp(tokens, reference) if needs.reference else None,
            start_logp=self.logp(tokens) if needs.start else None,
            precedent_logp=None if precedent is None else self.ref_logp(tokens, precedent),
        )
        self.past.remember(self.policy)
        if needs.critic != "none":
            once = self.config.minibatches == self.config.epochs == 1 and bool(batch.keep.all())
            self.critic_is_ahead = once and self.critic_alone
            of = self._learn_values if self.critic_is_ahead else self._values
            batch = replace(batch, values=of(tokens, batch))
        return tokens, batch, metrics

    def logp(self, tokens: Tokens) -> Tensor:
        """The policy's log-probs at the training temperature, (batch, time), without gradient."""
        return self._frozen(self.policy, tokens)

    def ref_logp(self, tokens: Tokens, policy: Policy | None = None) -> Tensor:
        """Return the reference's log-probs at the training temperature, (batch, time).

        `policy`: another policy that stands in for the run's reference.
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

        return by_parts(logp, tokens, self.config, self.ranks)

    @torch.no_grad()
    def _values(self, tokens: Tokens, _: Batch | None = None) -> Tensor:
        def values(rows: Tensor, _: bool) -> Tensor:
            part = tokens.rows(rows)
            if self.critic is not None:
                return self.critic(part)
            hidden = self.policy.run(token_hidden, part)
            return values_of(self.value_head, hidden, part.mask)

        return by_parts(values, tokens, self.config, self.ranks)

    def _learn_values(self, tokens: Tokens, batch: Batch) -> Tensor:
        """The critic's values, (batch, time), and its gradients, from one pass.

        Before a batch's only step its old values are those that it learns from.
        """

        def values(rows: Tensor, mine: bool) -> Tensor:
            part = tokens.rows(rows)
            now = self.critic(part)
            micro = replace(narrow(batch.rows(rows), part.mask.shape[1]), values=now.detach())
            self._critic_backward(now, self.algorithm.prepare(micro), mine)
            return now.detach()

        return by_parts(values, tokens, self.config, self.ranks)

    def _critic_backward(self, values: Tensor, batch: Batch, mine: bool) -> None:
        self._backward(self.algorithm.critic_loss(values, batch), mine)

    def _backward(self, loss: Tensor, mine: bool) -> None:
        (loss if mine else loss * 0).backward()
        self.optimiser.take_gradients()

    def _output(self, tokens: Tokens, batch: Batch, mine: bool = True) -> PolicyOutput:
        """The policy's output on these rows, with the values of whichever critic there is.

        A critic that can learn alone has done so, and its activations are gone: two backbones'
        need not be held at once.
        """
        if self.critic_is_ahead:
            values = batch.values
        elif self.critic is not None:
            values = self.critic(tokens)
            if self.critic_alone:
                self._critic_backward(values, batch, mine)
                values = values.detach()
        entropy = "graph" if self.algorithm.needs.entropy_graph else "value"
        temperature = self.config.temperature
        output = self.policy.run(score, tokens, temperature, self.value_head, entropy)
        return output if self.critic is None else replace(output, values=values)

    def _step(self, tokens: Tokens, batch: Batch, kept: Tensor) -> dict[str, float]:
        """Gradients over micro-batches, then one step of the optimiser."""
        in_passing = self.algorithm.needs.policy and batch.policy_logp is None
        totals: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=batch.mask.device))
        online, fresh = int(batch.online.sum()), int(batch.fresh.sum())
        counts = (online, fresh, len(batch.online) - online)
        for rows, mine in my_pieces(tokens.rows(kept), self.config, self.ranks):
            part = tokens.rows(kept[rows])
            micro = narrow(batch.rows(rows), part.mask.shape[1])
            output = self._output(part, micro, mine)
            if in_passing:
                now = replace(micro, policy_logp=output.logp.detach())
                micro = self.algorithm.prepare(now)
            loss, metrics = self.algorithm.loss(output, micro)
            self._backward(loss, mine)
            metrics |= common_metrics(output, micro, *counts)
            metrics["loss"] = loss.detach()
            for name, value in metrics.items():
                totals[name] += value.detach() if mine else 0
        totals = {name: self.ranks.sum(value) for name, value in totals.items()}
        norms = {
            name: whole(nn.utils.clip_grad_norm_(group["params"], self.config.max_grad_norm))
            for name, group in zip(
                ("grad_norm", "critic_grad_norm"), self.optimiser.param_groups, strict=False
            )
        }
        result = whole_step(totals, norms)
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.factor(self.batches)
        result["learning_rate"] = self.optimiser.param_groups[0]["lr"]
        if self.batches < self.algorithm.needs.critic_warmup:
            for parameter in self.optimiser.param_groups[0]["params"]:
                parameter.grad = None  # the policy stays as it is
        self.optimiser.step()
        self.policy.version += 1
        if self.average:
            self.average.follow(self.policy)
        return result
