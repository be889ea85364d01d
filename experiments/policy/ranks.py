"""The ranks that share a learner's work, each with a shard of its modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from torch import Tensor, nn

from experiments.policy import loading
from experiments.policy.policy import Policy

Item = TypeVar("Item")


class RankGroup(Protocol):
    """The ranks of a learner; every method is called on all of them together."""

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
        return loading.frozen_copy(policy)

    def share(self, items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
        return ((item, True) for item in items)

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast(self, value: Callable[[], Tensor]) -> Tensor:
        return value()


SINGLE_RANK = SingleRank()
