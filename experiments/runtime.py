"""How a run is distributed: which ranks share the learner, and where engines and judges run.

`Runtime` is the interface. `experiments.distributed` implements it: `SingleProcess`, `Torchrun`,
`Ray` and `TorchrunRay`. The learner needs only `RankGroup`, the part about its ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Engine
    from experiments.engines.weight_sync import WeightSync
    from experiments.policy.policy import Policy
    from experiments.rollout.batch_sources import BatchSource
    from experiments.rollout.environments import Environments

Item = TypeVar("Item")


class RankGroup(Protocol):
    """The ranks that share a learner's work, each with a shard of its modules."""

    size: int
    sharded: bool

    @property
    def is_rank_zero(self) -> bool: ...

    def shard(self, policy: Policy, critic: nn.Module | None = None) -> None:
        """Keep only this rank's shard of a policy's weights, and of the critic's around it.

        A policy that is sharded already stays as it is.
        """

    def shard_head(self, head: nn.Module) -> None:
        """Keep only this rank's shard of a value head's weights."""

    def engine_copy(self, policy: Policy) -> Policy:
        """Return a copy with whole weights for an engine, where engines need one."""

    def share(self, items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
        """Yield this rank's items, and whether each counts.

        All ranks get equally many, so that all enter the same collectives. A rank with fewer
        repeats an item that does not count. There must be at least one item.
        """

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks."""

    def broadcast(self, value: Callable[[], Tensor]) -> Tensor:
        """Return on every rank what rank 0's `value` returns."""


class Runtime(RankGroup, Protocol):
    """A learner's ranks, and the engines and judges that work for them."""

    local_engines: bool  # whether each rank has an engine and a judge of its own

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        """Open the judges of a run; they close with the block. Raises UserError."""

    def engines(
        self, config: RunConfig, policy: Policy, tokenizer: PreTrainedTokenizerBase
    ) -> Callable[[Policy], Engine]:
        """Return a factory of engines for policies shaped like `policy`. Raises UserError."""

    def prefetcher(
        self, weight_sync: WeightSync, rollouts: BatchSource, steps: int
    ) -> Callable[[int], None]:
        """Return a function to call before batch `step` is collected.

        It starts that batch and later ones where their weights exist already.
        """


class SingleRank:
    """A learner in one process: nothing is shared."""

    size = 1
    sharded = False
    is_rank_zero = True

    def shard(self, policy: Policy, critic: nn.Module | None = None) -> None:
        """Leave the weights whole."""

    def shard_head(self, head: nn.Module) -> None:
        """Leave the weights whole."""

    def engine_copy(self, policy: Policy) -> Policy:
        from experiments.policy import loading

        return loading.frozen_copy(policy)

    def share(self, items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
        return ((item, True) for item in items)

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast(self, value: Callable[[], Tensor]) -> Tensor:
        return value()


SINGLE_RANK = SingleRank()
