"""Pools of Ray actors. An actor that dies is replaced, and its unfinished calls are made again.

An actor runs its calls in the order in which they were made. A call may take the result of another
actor's call as an argument; Ray then passes it on directly, not through this process. An actor's
calls alone determine what it does, so a new one gives the same results. An engine gets weights and
seeds with each call; a judge gets the state as of its first unfinished call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import (
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from experiments.errors import UserError

DIED = (RayActorError, WorkerCrashedError, OutOfMemoryError, ObjectLostError)
MAX_DEATHS = 3  # of one actor in a row, without a result in between: more is not chance
POLL_S = 2  # how often a wait checks that the cluster is still there
CLOSE_S = 10  # for actors to close
SETTLE_S = 60  # for Ray to report how each call of a dead actor ended


class Call:
    """One call of one actor; its result is taken once."""

    def __init__(self, pool: ActorPool, index: int, method: str, args: tuple[Any, ...]) -> None:
        self.pool, self.index, self.method, self.args = pool, index, method, args
        self.dependents: list[Call] = []  # calls that take this one's result as an argument
        self.value: Any = None
        self.taken = False
        for arg in self.args:
            if isinstance(arg, Call):
                arg.dependents.append(self)
        self.submit()

    def submit(self) -> None:
        """Call the actor that is now in the place."""
        args = [_resolved(arg) if isinstance(arg, Call) else arg for arg in self.args]
        actor = self.pool.actors[self.index]
        self.ref = getattr(actor, self.method).remote(*args)

    def result(self) -> Any:
        """Wait for the result. Raises the actor's error, and UserError if the cluster is gone."""
        while not self.taken:
            with self.pool.translating_errors():
                try:
                    self.value = self.pool.fetch(self.ref)
                    self.taken = True
                except DIED as error:
                    self.pool.replace(self.index, error)
        self.pool.done(self)
        return self.value

    def peek(self) -> Any:
        """Return the result of a finished call without taking it; None if the call failed."""
        try:
            return ray.get(self.ref, timeout=SETTLE_S)
        except RayError:
            return None


def _resolved(argument: Call) -> Any:
    return argument.value if argument.taken else argument.ref


class ActorPool:
    """`size` actors of one kind, each in its place.

    The owner of a pool sets `prepare`, which readies an actor that replaces another before any
    other call, and returns references to wait for. It is given the actor and the finished calls
    of the dead one whose results are not taken yet.
    """

    prepare: Callable[[Any, list[Call]], list[Any]]

    def __init__(
        self, kind: str, size: int, start: Callable[[], Any], alive: Callable[[], bool]
    ) -> None:
        """`start` starts an actor; `alive`: whether the cluster still answers."""
        self.kind, self.start, self.alive = kind, start, alive
        self.actors = [start() for _ in range(size)]
        self.replaced = 0
        self._open: list[list[Call]] = [[] for _ in range(size)]
        self._deaths: Counter[int] = Counter()

    def call(self, index: int, method: str, *args: Any) -> Call:
        """Call one actor; an argument that is a Call stands for its result."""
        with self.translating_errors():
            call = Call(self, index, method, args)
        self._open[index].append(call)
        return call

    def call_all(self, method: str, *args: Any) -> list[Any]:
        """Call each actor, and wait for the results."""
        calls = [self.call(index, method, *args) for index in range(len(self.actors))]
        return [call.result() for call in calls]

    def fetch(self, ref: Any) -> Any:
        """Wait for a result. Raises the actor's error, one of DIED, or UserError (no cluster)."""
        try:
            while not ray.wait([ref], timeout=POLL_S)[0]:
                self._check_alive()
            return ray.get(ref)
        except DIED:
            self._check_alive()
            raise
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise self._cluster_ended(error) from error

    def end(self, method: str) -> None:
        """Call a last method on each actor; results still under way are dropped."""
        for calls in self._open:
            calls.clear()
        if not self.alive():
            return
        with suppress(RayError):
            last = [getattr(actor, method).remote() for actor in self.actors]
            ray.wait(last, num_returns=len(last), timeout=CLOSE_S)

    def done(self, call: Call) -> None:
        """Release the arguments of a call whose result was taken; weights are among them."""
        if call in self._open[call.index]:
            self._open[call.index].remove(call)
            self._deaths[call.index] = 0
        call.args, call.dependents, call.ref = (), [], None

    def replace(self, index: int, error: Exception) -> None:
        """Replace a dead actor. Raises UserError if its successors keep dying."""
        calls = self._open[index]
        ray.kill(self.actors[index])  # it may only have been out of reach
        refs = [call.ref for call in calls]
        ray.wait(refs, num_returns=len(refs), timeout=SETTLE_S)  # then each call's end is certain
        finished = [call for call in calls if call.peek() is not None]
        self.actors[index] = self._start_ready(index, finished, error)
        self.replaced += 1
        unfinished = [call for call in calls if call not in finished]
        for call in unfinished:
            call.submit()
        for call in unfinished:
            for dependent in call.dependents:
                dependent.submit()  # the earlier submission fails before it begins

    def _start_ready(self, index: int, finished: list[Call], error: Exception) -> Any:
        while True:
            self._check_alive()
            self._deaths[index] += 1
            if self._deaths[index] > MAX_DEATHS:
                raise UserError(
                    f"runtime=ray: one of the {self.kind} died {self._deaths[index]} times in a "
                    f"row: {first_line(error)}; see `ray logs` and the kernel's log"
                ) from error
            actor = self.start()
            try:
                for ref in self.prepare(actor, finished):
                    self.fetch(ref)
                return actor
            except DIED as again:
                error = again

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Turn errors raised because the cluster is gone into a UserError that says so."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            if self.alive():
                raise
            raise self._cluster_ended(error) from error

    def _check_alive(self) -> None:
        if not self.alive():
            raise self._cluster_ended()

    def _cluster_ended(self, error: Exception | None = None) -> UserError:
        cause = f" ({first_line(error)})" if error else ""
        return UserError(
            f"runtime=ray: the Ray cluster has ended{cause}; start it again, and resume "
            "with resume=FOLDER"
        )


def first_line(error: Exception) -> str:
    return (" ".join(str(error).strip().split("\n")[0].split()))[:300]
