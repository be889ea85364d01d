"""What a backend provides: one worker as a pair of byte streams, and a way to end it."""

from __future__ import annotations

from abc import ABC, abstractmethod


class WorkerHandle(ABC):
    """One worker as the pool sees it.

    The pool does the framing, the deadlines and the restarts. Streams must be non-blocking: one
    thread serves all workers through a selector.
    """

    @abstractmethod
    def start(self) -> None:
        """Begin to start the worker and return; its READY frame follows on the stream.

        Called once. A SandboxError, here or in `receive`, is final: it ends the pool's run.
        """

    def started(self) -> bool:
        """False as long as it is not the worker that is waited for, but what it will run in."""
        return True

    @abstractmethod
    def fileno(self) -> int:
        """The descriptor that becomes readable when the worker said something or died.

        It may be another one after a call of `receive`.
        """

    @abstractmethod
    def send(self, data: memoryview) -> int:
        """Write what can be written now; return the number of bytes, 0 if none could be.

        Raises OSError when the worker is gone.
        """

    @abstractmethod
    def receive(self) -> bytes | None:
        """The bytes that can be read now; None if there are none yet, b"" when it is gone."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once, with all that runs in it, and free its resources.

        Safe to call twice, and on a worker that never started.
        """

    def worn_out(self) -> bool:
        """True when the worker should be replaced before its next job (asked between jobs)."""
        return False

    def cause_of_death(self) -> str:
        """What is known of why the worker ended, for the log; "" if nothing."""
        return ""
