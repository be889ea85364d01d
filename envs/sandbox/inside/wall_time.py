"""How much of the wall time of a test is its own.

Not its own is time in which the test could run but had no core, as the kernel counts it, and time
in which this process stood still: stopped, frozen, or without a core itself. The clock does not
advance while the machine is suspended. A test that is stopped is continued: a program that stops
itself waits by itself, and from outside it looks the same.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time

from envs.sandbox.inside.framing import patience_s
from envs.sandbox.inside.kernel import Proc

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LOOK_S = 0.1  # how often a test is looked at; a shorter one never is
STALL_S = 0.1  # later than this, this process did not merely wake up late
CERTAIN_SHARE = 0.75  # of a wall limit, which is a wide net: whoever used it waited by itself
IDLE_SHARE = 0.25  # of the time in which a test seems to have waited by itself: so much of it did
RUNNABLE_S = 0.01  # extension of a wall limit that a process reaches while it could run


class WallClock:
    """The wall time of one test.

    Of several threads that wait for a core at once, the one that waits longest counts: a sum would
    let threads that block each other buy time. For the same reason no more is counted of any period
    than it is long: many threads that compute at once end a long wait at each look. The sum says
    what is certain: a program whose threads take turns may have waited for as long.
    """

    def __init__(self, proc: Proc, process: int, limit_s: float, started: float) -> None:
        """`process`: a pidfd of the test; `started`: when it was requested."""
        self.process, self.limit_s = process, limit_s
        self.begun: float | None = None  # when the program began
        self.now = started
        self.stalled_s = 0.0  # this process stood still
        self.waited_s = 0.0  # for a core, at each look the thread that waited longest
        self.waited_by_all_s = 0.0  # the sum over all threads
        self._proc, self._folder = proc, -1
        self._waits: dict[str, int] = {}  # thread → nanoseconds at the last look
        self._lost: list[tuple[float, float]] = []  # of each look, its time and all lost until then
        self._next_look = self._deadline = math.inf

    def wake(self, planned_s: float = 0.0) -> float:
        """Return the time, after a pause of at most `planned_s`; if it took longer, it stalled."""
        before, self.now = self.now, time.monotonic()
        late_s = self.now - before - planned_s
        if late_s > STALL_S:
            self.stalled_s += late_s
            self._next_look = min(self._next_look, self.now)
        return self.now

    def begin(self, begun: float) -> None:
        """Set the time at which the program began: what was before is not counted."""
        self.begun = begun
        self.stalled_s = min(self.stalled_s, self.now - begun)
        self._deadline = begun + self.limit_s + self.stalled_s
        self._next_look = begun + LOOK_S

    def left_s(self) -> float:
        """Return the seconds until the test is at its wall limit; infinity before it has begun."""
        if self.begun is None:
            return math.inf
        if self.now >= min(self._next_look, self._deadline):
            runnable = self._look()
            self._next_look = self.now + LOOK_S
            # A process that could run at its limit gets a little longer. Either it has a core, and
            # its CPU time will decide, or it waits for one.
            end = max(self._own_end(), self.now + RUNNABLE_S * runnable)
            self._deadline = min(end, self._given_up())
        return self._deadline - self.now

    def starved(self) -> bool:
        """Return whether it got no core for its limit in many times its limit."""
        return self.begun is not None and self._given_up() <= self.now < self._own_end()

    def stop(self) -> None:
        """Look at the test for the last time; to be called before it is reaped."""
        if self.begun is not None and self.now - self.begun > LOOK_S:
            self._look()
        if self._folder >= 0:
            os.close(self._folder)

    def report(self, cpu_s: float, killed: bool) -> dict[str, Any]:
        """Return what a result says of wall time; nothing of a test that was never looked at.

        `killed`: it was ended at a limit.
        """
        elapsed = self.now - (self.begun or self.now)
        if elapsed <= LOOK_S:
            return {}
        known = self._proc.counts_waiting
        certain = elapsed - self.stalled_s - self.waited_by_all_s  # its own in any case
        likely = elapsed - self.stalled_s - self.waited_s
        # Threads that only sleep, but wake up at once, each wait for the others.
        idle_s = max(certain - cpu_s, IDLE_SHARE * (likely - cpu_s))
        late = self.stalled_s > 0 and elapsed - self.waited_s > self.limit_s
        return {
            "lost_s": round(min(elapsed, self.stalled_s + self.waited_s), 6),
            "idle_s": round(max(0.0, idle_s), 6) if known else 0.0,
            "accounted": known and certain >= CERTAIN_SHARE * self.limit_s,
            "late": late and not killed,
        }

    def _own_end(self) -> float:
        """Return when the limit is reached, if nothing is lost from now on."""
        return (self.begun or 0.0) + self.limit_s + self.waited_s + self.stalled_s

    def _given_up(self) -> float:
        """Return when a test that waits for a core is given up; a stall is no fault of its own."""
        return (self.begun or 0.0) + patience_s(self.limit_s) + self.stalled_s

    def _look(self) -> bool:
        """Count what its threads waited since the last look; return whether one could run now.

        A thread that waits now is counted once it has a core.
        """
        states, waits, longest = set(), {}, 0
        for thread, state, waited_ns in self._threads():
            states.add(state)
            since = max(0, waited_ns - self._waits.get(thread, 0))
            waits[thread], longest = waited_ns, max(longest, since)
            self.waited_by_all_s += since / 1e9
        self._waits = waits
        self._count_wait(longest / 1e9)
        if b"T" in states:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.process, signal.SIGCONT)
        return b"R" in states

    def _count_wait(self, wait_s: float) -> None:
        """Count a wait that ended since the last look, as far as its time is not lost already."""
        begun = self.now - wait_s - LOOK_S
        before = next((lost for time_s, lost in reversed(self._lost) if time_s <= begun), 0.0)
        most = before + wait_s + LOOK_S - self.stalled_s
        self.waited_s = max(self.waited_s, min(self.waited_s + wait_s, most))
        self._lost.append((self.now, self.waited_s + self.stalled_s))

    def _threads(self) -> Iterator[tuple[str, bytes, int]]:
        """Yield (number, state, nanoseconds without a core) of each living thread."""
        proc = self._proc
        with contextlib.suppress(OSError):
            if self._folder < 0:
                fields = proc.read(f"self/fdinfo/{self.process}").split()
                pid = int(fields[fields.index(b"Pid:") + 1])
                flags = os.O_RDONLY | os.O_DIRECTORY
                self._folder = os.open(f"{pid}/task", flags, dir_fd=proc.folder)
            for thread in os.listdir(self._folder):
                with contextlib.suppress(OSError):  # it has just ended
                    state = proc.read(f"{thread}/stat", self._folder).rpartition(b")")[2]
                    waited = proc.read(f"{thread}/schedstat", self._folder).split()[1]
                    yield thread, state.split()[0], int(waited)
