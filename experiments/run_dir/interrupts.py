"""Ctrl-C and SIGTERM end a run cleanly: as KeyboardInterrupt, and never inside an optimiser step.

Until the run proper starts they end the process at once, since there is nothing to save.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

INTERRUPTED = 130  # exit status
DEFERRED = (
    "interrupted: the run first finishes this optimiser step or checkpoint; a second interrupt "
    "does not wait for it"
)
PR_SET_PDEATHSIG = 1
_state = {"deferring": 0, "pending": False}  # blocks that defer; whether an interrupt waits


def exit_on_interrupt(line: str = "") -> None:
    """Until `raise_interrupts`: end the process, without a traceback through running imports.

    `line` is printed first.
    """

    def leave(*_: object) -> None:
        if line:
            _print(line)
        os._exit(INTERRUPTED)

    _handle(leave)


def _print(line: str) -> None:
    """Print from a signal handler: it may have interrupted a print, whose lock is then taken."""
    with suppress(OSError):
        os.write(1, f"{line}\n".encode())


def raise_interrupts() -> None:
    """From now on raise KeyboardInterrupt for either signal."""
    _handle(interrupt)


def terminate_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def ignore_interrupts() -> None:
    """From now on ignore both signals."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _handle(handler: Callable[..., None]) -> None:
    """Keep a signal ignored that the parent process ignores, e.g. for background jobs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Raise an interrupt at the end of the block: half an optimiser step leaves no usable weights.

    A second interrupt is raised at once.
    """
    _state["deferring"] += 1
    try:
        yield
    finally:
        _state["deferring"] -= 1
    if _state["pending"] and not _state["deferring"]:
        _state["pending"] = False
        raise KeyboardInterrupt


def interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt; if a block defers it, say so and raise it at the block's end."""
    if _state["deferring"] and not _state["pending"]:
        _state["pending"] = True
        _print(DEFERRED)
        return
    _state["pending"] = False
    raise KeyboardInterrupt
