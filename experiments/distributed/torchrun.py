"""The ranks of one node under torchrun: one of them leads, the others do as they are told.

The main rank alone runs the loop, and so the run folder, the caches on disk, the evaluation's rows
and the log exist once and nothing can decide differently elsewhere. The others hold the same parts
and wait: `call` names a part and a method, which all ranks then run together.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from experiments.distributed.single_process import Item, SingleProcess
from experiments.errors import UserError
from experiments.policy.fsdp import shard
from experiments.run_dir.interrupts import held, ignore_ends

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.engines.base import Engine

CALL, VALUE, STOP = "call", "value", "stop"
START = "start"  # the target that says how each rank's own start went
WAIT = timedelta(days=1)  # of ranks for the main one, which may be evaluating; torchrun sees deaths


class Ended(Exception):
    """The main rank has ended the run, wherever this one was in it."""


class Start:
    """How the start of every rank went; `error` is what this one could not begin for."""

    def __init__(self, ranks: Torchrun) -> None:
        self.ranks, self.error = ranks, None

    def told(self) -> list[str | None]:
        """On every rank."""
        return self.ranks.gather(self.error)


class Torchrun(SingleProcess):
    """The process group of this run; `targets` are the parts that can be called by name."""

    sharded = True

    def __init__(self) -> None:
        """Raises KeyError where the process was not started by torchrun."""
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=WAIT)
        # A critic's values are a view; nobody changes them in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.mesh = init_device_mesh("cuda" if on_gpu else "cpu", (self.size,))
        self.start = Start(self)
        self.targets: dict[str, Any] = {START: self.start}
        self.closing: list[Callable[[], None]] = []  # of parts that have groups among the ranks
        self._broken = False
        self._others_wait = False  # in the midst of a call, until the main rank has a value

    @property
    def main(self) -> bool:
        return self.rank == 0

    def join(self, config: RunConfig) -> None:
        """On the main rank, before anything else. Raises UserError."""

    def engines(
        self, config: RunConfig, model: nn.Module, tokenizer: object
    ) -> Callable[[nn.Module], Engine]:
        """Raises UserError, and Ended on a rank whose main one could not begin."""
        from experiments.engines.factory import open_engines

        if config.engine.name == "vllm":
            self._meet()
        return open_engines(config, model, tokenizer, self.closing)

    def _meet(self) -> None:
        """Go on where all ranks have come this far: vLLM's start is a collective, in which those
        that could begin would wait for one that could not.
        """
        if self.main:
            self.check_begun()
            self._tell((VALUE, None))
        else:
            self._follow()

    def check_begun(self) -> None:
        """On the main rank: raises UserError where another could not begin."""
        for rank, error in enumerate(self.call(START, "told")):
            if error is not None:
                raise UserError(f"rank {rank}: {error}")

    def shard(self, module: nn.Module) -> None:
        shard(module, self.mesh)

    def share(self, items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
        items = list(items)
        for first in range(0, len(items), self.size):
            at = first + self.rank
            yield (items[at], True) if at < len(items) else (items[0], False)

    def sum(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def from_main(self, value: Callable[[], Tensor]) -> Tensor:
        """The main rank's `value` may call the others: until it is there, they do as told."""
        if not self.main:
            return self._follow().to(self.mesh.device_type)
        self._others_wait = True
        found = value()
        self._tell((VALUE, found.cpu()))
        self._others_wait = False
        return found

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on the main rank; nothing elsewhere."""
        found = [None] * self.size if self.main else None
        dist.gather_object(value, found)
        return found or []

    def call(
        self, target: str, method: str, *given: Any, mine: tuple[Any, ...] | None = None
    ) -> Any:
        """All ranks run targets[target].method(*given) → what it gives here.

        `mine`: what the main rank's gets instead. An interrupt waits until the ranks have ended it
        together; after an error that the others did not have, or a second interrupt, there is
        nothing to call any more, unless they wait for a value, and so for any call.
        """
        if self._broken:
            raise RuntimeError("the ranks are out of step after an error")
        waited, self._others_wait = self._others_wait, False
        with held():
            try:
                self._tell((CALL, target, method, given))
                return getattr(self.targets[target], method)(*(given if mine is None else mine))
            except UserError:
                raise  # of all ranks alike, or while they wait
            except BaseException:
                if not self._others_wait:
                    self._broken = True
                    ignore_ends()  # torchrun's, which would cut the run's last word short
                raise
            finally:
                self._others_wait = waited

    def serve(self) -> None:
        """Do as the main rank says until it ends."""
        with suppress(Ended):
            self._follow()

    def _follow(self) -> Any:
        """Do as the main rank says until it gives a value."""
        while True:
            message: list[Any] = [None]
            dist.broadcast_object_list(message, src=0)
            kind, *rest = message[0]
            if kind == STOP:
                raise Ended
            if kind == VALUE:
                return rest[0]
            target, method, given = rest
            try:
                getattr(self.targets[target], method)(*given)
            except UserError:
                continue  # the main rank has it too, and tells

    def stop(self) -> None:
        """End the run on all ranks, or alone where another has gone: how it ended is known."""
        with suppress(RuntimeError, ValueError):  # ValueError: there is no group any more
            if not self._broken:
                self._tell((STOP,))
        self.leave()

    def leave(self) -> None:
        """This process is no rank any more."""
        for close in self.closing:
            with suppress(Exception):  # how the run ended is known
                close()
        with suppress(RuntimeError):
            if dist.is_initialized():
                dist.destroy_process_group()

    def _tell(self, message: tuple[Any, ...]) -> None:
        dist.broadcast_object_list([message], src=0)
