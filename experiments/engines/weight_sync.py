"""Whose weights write, and how old they are: staleness as a controlled variable.

`train.sync_every=N`: the engine takes the learner's weights once in N batches, so that its lag is a
saw-tooth. `train.lag=L`: it takes them after every batch, but those of L batches before, as a
pipelined system would: from batch L + 1 on the writer is exactly L batches old.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from experiments.policy.fsdp import whole_tree
from experiments.policy.lora import is_adapted
from experiments.policy.weight_copies import ShardedSnapshot, WeightSnapshot
from experiments.policy.weights import copy_weights, from_tensors, tensors_of, weights_version
from experiments.run_dir import checkpoints

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from experiments.config.schema import TrainConfig
    from experiments.engines.base import Engine
    from experiments.sample import Sample


class WeightSync:
    """Hands weights from the learner to the engine, and knows which ones write."""

    def __init__(
        self, engine: Engine, model: nn.Module, config: TrainConfig, *, spread: bool = False
    ) -> None:
        """`model` is the learner's; the engine's may be the same one where it is never stale.

        `spread`: it is sharded over ranks that all follow it together.
        """
        self.engine, self.model, self.config = engine, model, config
        self._spread, self._waiting = spread, ShardedSnapshot if spread else WeightSnapshot
        self.version = weights_version(model)
        # The adapter that writes: an engine's own weights no longer tell it.
        self._given = _copies(model) if config.stale and is_adapted(model) else None
        self._wrote: dict[int, int] = {}  # batch → version of the weights that wrote it
        self._coming: deque[WeightSnapshot] = (
            deque()
        )  # weights of the last `lag` batches, oldest first

    def begin(self, step: int) -> int:
        """Batch `step` is about to be written → how many optimiser steps the writer lies behind."""
        self._wrote[step] = self.version
        return weights_version(self.model) - self.version

    def check(self, samples: Iterable[Sample]) -> None:
        """A RuntimeError where other weights wrote a sample than those that were to write it."""
        for sample in samples:
            origin = sample.origin
            if origin.source == "policy" and origin.version != self._wrote.get(origin.step):
                raise RuntimeError(
                    f"a response of batch {origin.step} was written by weights of "
                    f"{origin.version} optimiser steps, where those of "
                    f"{self._wrote.get(origin.step)} were to write it: the {self.engine.name} "
                    "engine does not hold what it was given"
                )

    def weights_of(self, batch: int, step: int) -> nn.Module | None:
        """What is to write `batch`, `step` being the next to be trained on; None: not trained yet.

        The same module may hold other weights once `step` has been followed.
        """
        if self.config.lag:
            at = batch - step - 1 - (self.config.lag - len(self._coming))
            if at < 0:
                return self.engine.model
            return self._coming[at].whole() if at < len(self._coming) else None
        every = self.config.sync_every
        return self.engine.model if (batch - 1) // every == (step - 1) // every else None

    def follow(self, step: int) -> bool:
        """Batch `step` has been trained on → whether the engine took other weights."""
        if self.config.lag:
            self._coming.append(self._waiting(self.model))
            if len(self._coming) <= self.config.lag:
                return False
            self._take(self._coming.popleft().whole())
            return True
        if step % self.config.sync_every:
            return False
        self._take(self.model)
        return True

    def _take(self, weights: nn.Module) -> None:
        self.engine.sync(weights)
        self.version = weights_version(weights)
        if self._given is not None:
            self._given = _copies(weights)

    def state_dict(self, keep: bool = True) -> dict[str, Any]:
        """What writes, where it is not what was trained last, and what will: no copies but of
        shards, which are whole then.

        All ranks have to ask; of shards, one that is not to `keep` them gets None.
        """
        given = self._given
        writes = tensors_of(self.engine.model) if given is None else whole_tree(given, keep)
        coming = [(held.version, held.tensors(keep)) for held in self._coming]
        return {
            "version": self.version,
            "wrote": dict(self._wrote),
            "writes": writes if self.config.stale else None,
            "coming": coming,
        }

    def load_from(self, checkpoint: Path) -> None:
        """As it was when that checkpoint was written, after the learner."""
        state = checkpoints.tensors(checkpoint)[
            "weight_sync"
        ]  # mapped: not to be kept, nor changed
        self.load_state_dict(state if self._spread else copy.deepcopy(state))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As it was when `state_dict` was called; the learner's own weights are not part of it."""
        self.version, self._wrote = state["version"], dict(state["wrote"])
        known = partial(self._waiting.known, self.model)
        self._coming = deque(known(weights, version) for version, weights in state["coming"])
        if state["writes"] is not None:
            writes = from_tensors(self.model, state["writes"], self.version)
            copy_weights(writes, into=self.engine.model)
            if self._given is not None:
                self._given = [tensor.clone() for tensor in state["writes"]]
        elif self.engine.model is not self.model:
            self.engine.sync(self.model)


def _copies(model: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors_of(model)]
