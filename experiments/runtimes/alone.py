"""The verbs by which a learner shares its work; here with nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor, nn

Item = TypeVar("Item")


class Alone:
    """One process that does everything."""

    size = 1
    sharded = False

    def shard(self, module: nn.Module) -> None:
        """Keep only this rank's part of the weights."""

    def share(self, items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
        """This rank's items, and whether each counts.

        All ranks get equally many, so that all enter the same collectives; one that has fewer gets
        an item again that counts for nothing. There is at least one item.
        """
        return ((item, True) for item in items)

    def sum(self, tensor: Tensor) -> Tensor:
        """Added up over the ranks."""
        return tensor

    def from_main(self, value: Callable[[], Tensor]) -> Tensor:
        """What the main rank's `value` gives, on every rank."""
        return value()


ALONE = Alone()
