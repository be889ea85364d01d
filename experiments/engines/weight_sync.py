"""Weight sync from the learner to the rollout policy's engine: staleness as a controlled variable.

`train.sync_every=N` copies the learner's weights to the engine every N batches, so the lag is a
saw-tooth. `train.lag=L` copies weights after every batch, but those of L batches before, as a
pipelined system would: from batch L + 1 on the rollout policy is exactly L batches old.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from experiments.policy.fsdp import whole_tree
from experiments.policy.policy import copy_weights
from experiments.policy.weight_snapshots import ShardedSnapshot, WeightSnapshot, from_tensors
from experiments.run_dir import checkpoints

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from experiments.config.schema import TrainConfig
    from experiments.engines.base import Engine
    from experiments.policy.policy import Policy, WeightSource
    from experiments.sample import Sample


class WeightSync:
    """Copies the learner's weights to the engine, and records which version generates a batch."""

    def __init__(
        self, engine: Engine, policy: Policy, config: TrainConfig, *, sharded: bool = False
    ) -> None:
        """`policy` is the learner's; the engine's may be the same one if it is never stale.

        `sharded`: the policy is sharded over ranks that call every method together.
        """
        self.engine, self.policy, self.config = engine, policy, config
        self._sharded = sharded
        self._snapshots = ShardedSnapshot if sharded else WeightSnapshot
        self.version = policy.version
        # The adapter of the rollout policy: the engine's merged weights do not reveal it.
        adapter = config.keeps_rollout_copy and policy.adapter is not None
        self._adapter = _clones(policy.own_tensors()) if adapter else None
        self._versions: dict[int, int] = {}  # batch → version of the weights that generate it
        # Weights of the last `lag` batches, oldest first.
        self._pending: deque[WeightSnapshot | ShardedSnapshot] = deque()

    def begin(self, step: int) -> int:
        """Register batch `step` before it is generated → its lag in optimiser steps."""
        self._versions[step] = self.version
        return self.policy.version - self.version

    def check(self, samples: Iterable[Sample]) -> None:
        """Raise RuntimeError if a sample's policy version is not that of its batch.

        This compares version numbers. Whether the engine computes with those weights is seen by
        `LogprobCheck`, which waits until they are the learner's.
        """
        for origin in (sample.origin for sample in samples):
            expected = None if origin.step is None else self._versions.get(origin.step)
            if origin.source == "policy" and origin.version != expected:
                raise RuntimeError(
                    f"a response of batch {origin.step} was written by weights of "
                    f"{origin.version} optimiser steps, where those of {expected} were to write "
                    f"it: the {self.engine.name} engine does not hold what it was given"
                )

    def weights_of(self, batch: int, step: int) -> WeightSource | None:
        """Return the weights that generate `batch`, if they exist before `step` is trained on.

        The same object may hold other weights once `step` has been followed.
        """
        if self.config.lag:
            # In `_pending`, which the first batches fill up to `lag`; below 0: the engine has them.
            index = batch - step - 1 - (self.config.lag - len(self._pending))
            if index < 0:
                return self.engine.policy
            return self._pending[index].whole() if index < len(self._pending) else None
        every = self.config.sync_every
        return self.engine.policy if (batch - 1) // every == (step - 1) // every else None

    def follow(self, step: int) -> bool:
        """Sync after batch `step` was trained on, if it is due → whether the weights changed."""
        if self.config.lag:
            self._pending.append(self._snapshots.of(self.policy))
            if len(self._pending) <= self.config.lag:
                return False
            self._sync(self._pending.popleft().whole())
            return True
        if step % self.config.sync_every:
            return False
        self._sync(self.policy)
        return True

    def _sync(self, weights: WeightSource) -> None:
        self.engine.sync(weights)
        self.version = weights.version
        if self._adapter is not None:
            self._adapter = _clones(weights.own_tensors())

    def state_dict(self, keep: bool = True) -> dict[str, Any]:
        """Return the rollout policy's weights, if they are stale, and the pending ones.

        Nothing is copied but shards, which are made whole. A collective of all ranks if sharded; a
        rank without `keep` then contributes its shards and gets None.
        """
        weights: Any = None
        if self.config.keeps_rollout_copy and self._adapter is None:
            weights = self.engine.policy.own_tensors()
        elif self.config.keeps_rollout_copy:
            weights = whole_tree(self._adapter, keep)
        return {
            "version": self.version,
            "versions": dict(self._versions),
            "weights": weights,
            "pending": [(held.version, held.tensors(keep)) for held in self._pending],
        }

    def load_from(self, checkpoint: Path) -> None:
        """Restore the state of that checkpoint; the learner has been restored before."""
        # The checkpoint is memory-mapped: its tensors must be neither kept nor changed.
        state = checkpoints.tensors(checkpoint)["weight_sync"]
        self.load_state_dict(state if self._sharded else copy.deepcopy(state))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the learner's own weights are not part of it."""
        self.version, self._versions = state["version"], dict(state["versions"])
        self._pending = deque(
            self._snapshots.restore(self.policy, tensors, version)
            for version, tensors in state["pending"]
        )
        if state["weights"] is not None:
            weights = from_tensors(self.policy, state["weights"], self.version)
            copy_weights(weights, into=self.engine.policy)
            if self._adapter is not None:
                self._adapter = _clones(state["weights"])
        elif self.engine.policy is not self.policy:
            self.engine.sync(self.policy)


def _clones(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]
