"""Engines in Ray actors, and the prefetching of batches.

A batch's responses depend on weights, prompts and seeds alone. Its verdicts depend on those and on
all earlier judging, in order. So a batch can be generated and judged as soon as its weights exist,
while the loop trains on earlier batches, and the results and counts stay those of a sequential run.
The loop takes a batch's costs and the judges' state when it comes to the batch. A checkpoint
therefore has nothing in flight: a resumed run generates and judges those batches again, to the same
bits, from the rollout policy's weights in the checkpoint.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import ray

from experiments.engines.base import Engine, OnFinished, Request
from experiments.runtime.ray_actor_pool import ActorPool, Call
from experiments.runtime.ray_judge import RayJudge
from experiments.sample import Completion

if TYPE_CHECKING:
    from experiments.engines.weight_sync import WeightSync
    from experiments.policy.policy import Policy, WeightSource
    from experiments.rollout.rollouts import Rollouts
    from experiments.sample import PromptedProblem

# Versions that the store itself keeps: the base, the rollout policy and the trained one. A call
# under way keeps its own, so up to train.lag + 1 more exist.
MAX_VERSIONS = 3


class WeightStore:
    """A run's weights in Ray's object store, each version put there once."""

    def __init__(self) -> None:
        self._refs: OrderedDict[int, Any] = OrderedDict()

    def put(self, weights: WeightSource) -> tuple[int, Any]:
        """Return the version of the weights and a reference to their tensors, as bytes."""
        version = weights.version
        if version not in self._refs:
            import torch

            tensors = (value.cpu().contiguous().view(-1) for value in weights.plain_weights())
            self._refs[version] = ray.put([t.view(torch.uint8).numpy() for t in tensors])
        self._refs.move_to_end(version)
        while len(self._refs) > MAX_VERSIONS:
            self._refs.popitem(last=False)
        return version, self._refs[version]


class RayEngine(Engine):
    """An engine over n actors; actor i generates for prompts i, i+n, …."""

    def __init__(
        self, pool: ActorPool, name: str, description: str, store: WeightStore, policy: Policy
    ) -> None:
        """`policy` holds the weights to generate with, in this process."""
        self.pool, self.name, self._description = pool, name, description
        self.store, self.policy = store, policy
        self._prefetched: dict[tuple, list[Call]] = {}
        # for each actor, the calls of which it keeps keys and values: another actor in its place
        # repeats them
        self._kept: list[list[Request]] = [[] for _ in pool.actors]
        self._releases: list[Call] = []  # under way

    @property
    def description(self) -> str:
        return f"{self._description}, in {len(self.pool.actors)} of Ray's actors"

    def sync(self, weights: WeightSource) -> None:
        """Take weights; the actors load them from the object store at their next call."""
        self._copy(weights)

    def generate(self, request: Request, finished: OnFinished = None) -> list[list[Completion]]:
        calls = None if request.begun else self._prefetched.pop(_key(self.version, request), None)
        calls = calls or self._start(self.policy, request)
        size = len(calls)
        groups: list[list[Completion]] = [[] for _ in request.prompts]
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

    def prefetch(self, weights: WeightSource, request: Request) -> list[Call]:
        """Start generating with these weights; a later `generate` takes the result."""
        calls = self._start(weights, request)
        self._prefetched[_key(weights.version, request)] = calls
        return calls

    def _start(self, weights: WeightSource, request: Request) -> list[Call]:
        size = min(len(self.pool.actors), len(request.prompts))
        trained = next(self.policy.model.parameters()).requires_grad
        while self._releases:
            self._releases.pop().result()
        with self.pool.translating_errors():
            version, reference = self.store.put(weights)
        calls = []
        for index in range(size):
            own = request.part(slice(index, None, size))
            earlier = list(self._kept[index])
            arguments = (version, reference, trained, own, earlier)
            calls.append(self.pool.call(index, "generate", *arguments))
            if earlier or own.keep:
                self._kept[index].append(own)
        return calls

    def release_memory(self) -> None:
        """Have actors release what they keep, before their next call."""
        for index, calls in enumerate(self._kept):
            if calls:
                calls.clear()
                self._releases.append(self.pool.call(index, "release_memory"))


class Prefetcher:
    """Start each batch, in order, as soon as the weights that generate it exist.

    At most max(train.lag + 1, train.sync_every) batches are in flight, each with the weights that
    these keys give it. The judges get a batch's offline programs that many batches before it
    starts. Judges work in order, and how many responses are generated beside the offline programs
    is known once those are judged.
    """

    def __init__(self, weight_sync: WeightSync, rollouts: Rollouts, steps: int) -> None:
        self.weight_sync, self.rollouts, self.steps = weight_sync, rollouts, steps
        train = weight_sync.config
        self._max_in_flight = max(train.lag + 1, train.sync_every)
        self._last_started = self._last_foreseen = 0  # batches

    def __call__(self, step: int) -> None:
        """Start what can be started; batch `step` is the next to be collected."""
        for batch in range(max(step, self._last_started + 1), self.steps + 1):
            weights = self.weight_sync.weights_of(batch, step)
            if weights is None:
                return
            self._foresee(min(batch + self._max_in_flight, self.steps), step)
            planned = self.rollouts.plan(batch, step)
            if planned is None:
                return
            prompts, seeds = planned
            if any(seeds):
                self._start(weights, prompts, seeds)
            self._last_started = batch

    def _start(
        self, weights: WeightSource, prompts: list[PromptedProblem], seeds: list[list[int]]
    ) -> None:
        engine, judge, sampling = self.rollouts.engine, self.rollouts.judge, self.rollouts.sampling
        assert isinstance(engine, RayEngine) and isinstance(judge, RayJudge)
        tokens = [prompt.tokens for prompt in prompts]
        request = Request(tokens, seeds, sampling)
        judge.prefetch(prompts, engine.prefetch(weights, request))

    def _foresee(self, last: int, step: int) -> None:
        """Start judging the offline programs of the batches up to `last`."""
        for batch in range(max(step, self._last_foreseen + 1), last + 1):
            self.rollouts.prefetch(batch, step)
            self._last_foreseen = batch


def _key(version: int, request: Request) -> tuple:
    return version, tuple(map(tuple, request.prompts)), tuple(map(tuple, request.seeds))
