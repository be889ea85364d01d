"""Ctrl-C and SIGTERM end a run cleanly: as KeyboardInterrupt, and never in half an optimiser step.

Until the run proper begins they end the process at once: there is nothing to save.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1
_state = {"held": 0, "waiting": False}


def end_at_once() -> None:
    """Until `catch`: exit status 130, and no traceback through whatever is being imported."""
    _handle(lambda *_: os._exit(130))


def catch() -> None:
    """From now on either signal is a KeyboardInterrupt."""
    _handle(_arrived)


def end_with_parent() -> None:
    """From now on the end of the parent process, whatever it is, is a SIGTERM."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def ignore_ends() -> None:
    """From now on neither signal does anything."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN)


def _handle(handler: Callable[..., None]) -> None:
    """A signal that the parent process has switched off stays so, e.g. for background jobs."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(sent) is not signal.SIG_IGN:
            signal.signal(sent, handler)


@contextmanager
def held() -> Iterator[None]:
    """An interrupt waits for the end of the block: weights half way through a step are no weights.

    A second one does not wait.
    """
    _state["held"] += 1
    try:
        yield
    finally:
        _state["held"] -= 1
    if _state["waiting"] and not _state["held"]:
        _state["waiting"] = False
        raise KeyboardInterrupt


def _arrived(*_: object) -> None:
    if _state["held"] and not _state["waiting"]:
        _state["waiting"] = True
        return
    _state["waiting"] = False
    raise KeyboardInterrupt
