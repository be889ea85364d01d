"""The verbs by which a learner shares its work; here with nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor, nn

    from experiments.config.schema import RunConfig
    from experiments.engines.base import Engine
    from experiments.engines.weight_sync import WeightSync
    from experiments.rollout.environments import Environments

Item = TypeVar("Item")


class SingleProcess:
    """One process that does everything."""

    size = 1
    sharded = False
    writes = True  # what learns has an engine and a judge beside it

    def shard(self, module: nn.Module) -> None:
        """Keep only this rank's part of the weights."""

    def copy_of(self, model: nn.Module) -> nn.Module:
        """Whole weights for engines to write with, where those are to be."""
        from experiments.policy import loading

        return loading.frozen_copy(model)

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

    def environments(self, config: RunConfig) -> AbstractContextManager[Environments]:
        """What judges, until the block is left. Raises UserError."""
        if config.sandbox.nodes is not None:
            from experiments.distributed.ray_judge_nodes import judges_on_nodes

            return judges_on_nodes(config)
        from experiments.rollout.environments import open_environments

        return open_environments(config)

    def engines(
        self, config: RunConfig, model: nn.Module, tokenizer: object
    ) -> Callable[[nn.Module], Engine]:
        """What makes an engine of a module shaped as `model`. Raises UserError."""
        from experiments.engines.factory import open_engines

        return open_engines(config, model, tokenizer)

    def ahead(self, writer: WeightSync, rollouts: Any, steps: int) -> Callable[[int], None]:
        """To be called before a batch is collected: begins it and those after, where it can."""
        return lambda step: None


SINGLE_PROCESS = SingleProcess()
