"""Standard error of one test: nobody judges it, so it is read as it comes and its end is kept.

A pipe, since a file would count what is written there towards the limit on output.
"""

from __future__ import annotations

import os

from envs.sandbox.inside.framing import STDERR_TAIL

MOST_BYTES = 16 << 20  # beyond it a program does nothing but complain
_TAIL_BYTES = 4 * STDERR_TAIL  # UTF-8 has at most 4 for a character
_PART, _PARTS = 1 << 16, 16  # a pipe's capacity, and how often it is emptied at a time


class StderrTail:
    """The pipe, both ends of it, and what came through."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.fchmod(self.reader, 0o666)  # so that another user may open /proc/self/fd/2
        self.size, self._tail = 0, b""  # bytes that came, the last of them

    def drain(self) -> None:
        """Read what is there, but come back to a writer that does not pause."""
        for _ in range(_PARTS):
            try:
                part = os.read(self.reader, _PART)
            except BlockingIOError:
                return
            self.size += len(part)
            self._tail = (self._tail + part)[-_TAIL_BYTES:]

    @property
    def tail(self) -> str:
        """The last STDERR_TAIL characters."""
        return self._tail.decode("utf-8", "replace")[-STDERR_TAIL:]

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self.writer)
