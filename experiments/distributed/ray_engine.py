"""An engine whose work Ray's actors do, and batches that are begun ahead of the loop.

A batch's responses depend on weights, prompts and seeds alone, and its verdicts on those and on
what was judged before it, in order. So a batch may be written and judged as soon as the weights
that are to write it exist, while the loop trains on those before: results and counts are those of
one thing after another. The loop's side takes what a batch has cost and taught when the loop comes
to it; a checkpoint therefore knows nothing of what is in flight, and a run that goes on has it
written and judged again, to the same bits, from the writer's weights that checkpoints hold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ray

from experiments.distributed.ray_actor_pool import ActorPool, Call
from experiments.engines.base import Completion, Engine, FinishedResponse, Sampling
from experiments.policy.weights import plain_weights, weights_version

if TYPE_CHECKING:
    from torch import nn

    from experiments.engines.weight_sync import WeightSync
    from experiments.rollout.rollouts import Rollouts

HELD = 3  # versions of the weights: the base, the behaviour policy and the trained one


class Weights:
    """A run's weights in the object store, by version, each put there once."""

    def __init__(self) -> None:
        self._refs: OrderedDict[int, Any] = OrderedDict()

    def of(self, model: nn.Module) -> tuple[int, Any]:
        """(version, reference to its tensors as bytes)"""
        version = weights_version(model)
        if version not in self._refs:
            import torch

            tensors = (value.cpu().contiguous().view(-1) for _, value in plain_weights(model))
            self._refs[version] = ray.put([t.view(torch.uint8).numpy() for t in tensors])
        self._refs.move_to_end(version)
        while len(self._refs) > HELD:  # calls that are under way keep theirs
            self._refs.popitem(last=False)
        return version, self._refs[version]


class RayEngine(Engine):
    """Writes with the weights of `model`; every so-many-th prompt goes to the same actor."""

    def __init__(
        self, crew: ActorPool, name: str, told: str, weights: Weights, model: nn.Module
    ) -> None:
        self.crew, self.name, self._told = crew, name, told
        self.weights, self.model = weights, model
        self._begun: dict[tuple, list[Call]] = {}

    @property
    def described(self) -> str:
        return f"{self._told}, in {len(self.crew.actors)} of Ray's actors"

    def sync(self, model: nn.Module) -> None:
        """The actors take them from the object store when they write next."""
        self._copy(model)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        finished: Callable[[Sequence[FinishedResponse]], None] | None = None,
    ) -> list[list[Completion]]:
        key = _key(self.version, prompts, seeds)
        calls = self._begun.pop(key, None) or self._start(self.model, prompts, seeds, sampling)
        size, groups = len(calls), [[] for _ in prompts]
        for first, call in enumerate(calls):
            groups[first::size] = call.result().groups
            if finished:
                finished(
                    [
                        (prompt, number, completion)
                        for prompt in range(first, len(groups), size)
                        for number, completion in enumerate(groups[prompt])
                    ]
                )
        return groups

    def begin(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
    ) -> list[Call]:
        """Have the weights of `model` write what will be asked for later."""
        calls = self._start(model, prompts, seeds, sampling)
        self._begun[_key(weights_version(model), prompts, seeds)] = calls
        return calls

    def _start(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
    ) -> list[Call]:
        size = min(len(self.crew.actors), len(prompts))
        trained = next(self.model.parameters()).requires_grad
        with self.crew.asking():
            given = (*self.weights.of(model), trained)
        return [
            self.crew.call(i, "write", *given, prompts[i::size], seeds[i::size], sampling)
            for i in range(size)
        ]


class Prefetcher:
    """Begins each batch as soon as the weights that are to write it exist, in order.

    So at most max(train.lag + 1, train.sync_every) batches are in flight, and each is written by
    the weights that `train.lag` and `train.sync_every` say. As many batches before it is begun, the
    judges are given the data set's programs that will stand in it: judges do one thing after the
    other, and what is written beside those programs is known when they have been judged.
    """

    def __init__(self, writer: WeightSync, rollouts: Rollouts, steps: int) -> None:
        self.writer, self.rollouts, self.steps = writer, rollouts, steps
        train = writer.config
        self._most = max(train.lag + 1, train.sync_every)  # batches in flight
        self._begun = self._foreseen = 0  # the last batch that was

    def __call__(self, step: int) -> None:
        """Batch `step` is the next to be collected."""
        for batch in range(max(step, self._begun + 1), self.steps + 1):
            weights = self.writer.weights_of(batch, step)
            if weights is None:
                return
            self._foresee(min(batch + self._most, self.steps), step)
            asked = self.rollouts.planned(batch, step)
            if asked is None:
                return
            (prompts, seeds), rollouts = asked, self.rollouts
            if any(seeds):
                tokens = [prompt.tokens for prompt in prompts]
                written = rollouts.engine.begin(weights, tokens, seeds, rollouts.sampling)
                rollouts.judge.begin(prompts, written)
            self._begun = batch

    def _foresee(self, last: int, step: int) -> None:
        for batch in range(max(step, self._foreseen + 1), last + 1):
            self.rollouts.foresee(batch, step)
            self._foreseen = batch


def _key(version: int, prompts: Sequence[Sequence[int]], seeds: Sequence[Sequence[int]]) -> tuple:
    return version, tuple(map(tuple, prompts)), tuple(map(tuple, seeds))
