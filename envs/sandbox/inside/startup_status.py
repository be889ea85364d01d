"""What a test process tells the server before it runs a line of the program: a shared page."""

from __future__ import annotations

import mmap
import struct
import time

_NOWHERE, _BEGUN = 0, 1
_REFUSALS = {2: "SYNTAX_ERROR", 3: "MEMORY_LIMIT"}
# How far it is; CPU seconds that it had used when its program began; the time then.
_LAYOUT = struct.Struct("Bdd")


class Stage:
    """One test process at a time writes here; once it has, it lets go of the page."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _LAYOUT.size)

    def reset(self) -> None:
        """For the next test process."""
        _LAYOUT.pack_into(self._page, 0, _NOWHERE, 0.0, 0.0)

    def begin(self) -> None:
        """The program comes next: what was done so far is not its own.

        The server may look at any moment, so that the first byte is written last.
        """
        _LAYOUT.pack_into(self._page, 0, _NOWHERE, time.process_time(), time.monotonic())
        self._page[0] = _BEGUN
        self._page.close()

    def refuse(self, outcome: str) -> None:
        """There is no program to run."""
        self._page[0] = next(code for code, name in _REFUSALS.items() if name == outcome)

    @property
    def refused(self) -> str | None:
        """The outcome of a program that does not compile."""
        return _REFUSALS.get(self._page[0])

    @property
    def begun(self) -> tuple[float, float] | None:
        """CPU seconds used before the program began, and when that was; None if it has not."""
        state, used, since = _LAYOUT.unpack_from(self._page)
        return (used, since) if state == _BEGUN and since else None
