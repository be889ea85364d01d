"""Ray actors of one kind. One that dies is replaced, and what it had not finished is asked again.

An actor does its calls in the order in which they were made. A call may take the result of another
actor's as an argument; then Ray hands it over, and nothing passes through this process. Actors are
told by their calls alone what to do, so a new one gives the same results: an engine gets weights
and seeds, a judge is brought to what is known when its first unfinished call begins.
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
DEATHS = 3  # of one actor in a row, without a result in between: then it is not chance
LOOK_S = 2  # how often a wait asks whether the cluster is still there
CLOSE_S = 10  # for an actor to end what it began
SETTLE_S = 60  # for Ray to say of each call of a dead actor how it ended


class Call:
    """One call of one actor; its result is taken once."""

    def __init__(self, crew: ActorPool, index: int, method: str, args: tuple[Any, ...]) -> None:
        self.crew, self.index, self.method, self.args = crew, index, method, args
        self.after: list[Call] = []  # calls that take this one's result
        self.value: Any = None
        self.taken = False
        for other in self._needed():
            other.after.append(self)
        self.submit()

    def _needed(self) -> list[Call]:
        return [arg for arg in self.args if isinstance(arg, Call)]

    def submit(self) -> None:
        """Ask the actor that now holds the place."""
        given = [self._given(arg) if isinstance(arg, Call) else arg for arg in self.args]
        actor = self.crew.actors[self.index]
        self.ref = getattr(actor, self.method).remote(*given)

    @staticmethod
    def _given(needed: Call) -> Any:
        return needed.value if needed.taken else needed.ref

    def result(self) -> Any:
        """Wait for it. Raises what the actor has raised, and UserError where Ray has gone."""
        while not self.taken:
            with self.crew.asking():
                try:
                    self.value = self.crew.fetch(self.ref)
                    self.taken = True
                except DIED as error:
                    self.crew.replace(self.index, error)
        self.crew.done(self)
        return self.value

    def peek(self) -> Any:
        """The result of a call that has ended, which does not take it; None where it failed."""
        try:
            return ray.get(self.ref, timeout=SETTLE_S)
        except RayError:
            return None


class ActorPool:
    """`size` actors of one kind, each in its place.

    Whoever makes a crew sets `prepare`. It readies an actor that takes another's place, before
    anything else is asked of it → what to wait for; it is given the actor and the finished calls
    whose results the other left to be taken.
    """

    prepare: Callable[[Any, list[Call]], list[Any]]

    def __init__(
        self,
        kind: str,
        size: int,
        start: Callable[[int], Any],
        setting: str,
        alive: Callable[[], bool],
    ) -> None:
        """`start` makes the actor of a place; `setting`: what asked for them, for messages;
        `alive`: the cluster is still there.
        """
        self.kind, self.start, self.setting, self.alive = kind, start, setting, alive
        self.actors = [start(index) for index in range(size)]
        self.replaced = 0
        self._abandoned = False
        self._open: list[list[Call]] = [[] for _ in range(size)]
        self._deaths: Counter[int] = Counter()

    def call(self, index: int, method: str, *args: Any) -> Call:
        """Ask one of them; an argument that is a Call stands for its result."""
        with self.asking():
            made = Call(self, index, method, args)
        self._open[index].append(made)
        return made

    def all(self, method: str, *args: Any) -> list[Any]:
        """Ask each of them, and wait."""
        calls = [self.call(index, method, *args) for index in range(len(self.actors))]
        return [call.result() for call in calls]

    def abandon(self) -> None:
        """From another thread: whoever waits for an actor, now or later, does so in vain."""
        self._abandoned = True

    def fetch(self, ref: Any) -> Any:
        """What an actor gave. Raises its own error, one of DIED, or UserError: Ray has gone."""
        try:
            while not ray.wait([ref], timeout=LOOK_S)[0]:
                if self._abandoned:
                    raise RuntimeError(f"nobody waits for the {self.kind} any more")
                self._check_alive()
            return ray.get(ref)
        except DIED:
            self._check_alive()
            raise
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise self._gone(error) from error

    def end(self, method: str) -> None:
        """The last word to each; what is still under way is nobody's any more."""
        for calls in self._open:
            calls.clear()
        if not self.alive():
            return
        with suppress(RayError):
            last = [getattr(actor, method).remote() for actor in self.actors]
            ray.wait(last, num_returns=len(last), timeout=CLOSE_S)

    def done(self, call: Call) -> None:
        """Its result was taken: let go of what it was given, weights among it."""
        if call in self._open[call.index]:
            self._open[call.index].remove(call)
            self._deaths[call.index] = 0
        call.args, call.after, call.ref = (), [], None

    def replace(self, index: int, error: Exception) -> None:
        """Put a new actor in the place of a dead one. Raises UserError where that is of no use."""
        waiting = self._open[index]
        ray.kill(self.actors[index])  # it may only have been out of reach
        refs = [call.ref for call in waiting]
        ray.wait(refs, num_returns=len(refs), timeout=SETTLE_S)  # then it is certain what was done
        finished = [call for call in waiting if call.peek() is not None]
        self.actors[index] = self._ready(index, finished, error)
        self.replaced += 1
        again = [call for call in waiting if call not in finished]
        for call in again:
            call.submit()
        for call in again:
            for following in call.after:
                following.submit()  # as it was made, it fails before it begins

    def _ready(self, index: int, finished: list[Call], error: Exception) -> Any:
        while True:
            self._check_alive()
            self._deaths[index] += 1
            if self._deaths[index] > DEATHS:
                raise UserError(
                    f"{self.setting}: one of the {self.kind} died {self._deaths[index]} times in a "
                    f"row: {first_line(error)}; `ray logs` and the kernel's log may say why"
                ) from error
            made = self.start(index)
            try:
                for ref in self.prepare(made, finished):
                    self.fetch(ref)
                return made
            except DIED as again:
                error = again

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Whatever is raised in the block because Ray has gone becomes a UserError that says so."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            if self.alive():
                raise
            raise self._gone(error) from error

    def _check_alive(self) -> None:
        if not self.alive():
            raise self._gone()

    def _gone(self, error: Exception | None = None) -> UserError:
        told = f" ({first_line(error)})" if error else ""
        return UserError(
            f"{self.setting}: the Ray cluster has ended{told}; start it again, and resume=FOLDER "
            "goes on"
        )


def first_line(error: Exception) -> str:
    return (" ".join(str(error).strip().split("\n")[0].split()))[:300]
