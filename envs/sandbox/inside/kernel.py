"""What Python 3.11's library lacks: calls of Linux through ctypes, and a test's wall time.

Not a test's own is time in which it could run but had no core, as the kernel counts it, and time in
which this process stood still: stopped, frozen, or without a core itself. The clock does not
advance while the machine is suspended. A test that is stopped is continued: a program that stops
itself waits by itself, and from outside it looks the same.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import math
import os
import resource
import signal
import struct
import sys
import time

from envs.sandbox.inside.framing import patience_s

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType
    from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_PARENT, CLONE_CHILD_SETTID = 0x8000, 0x1000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_MODE_FILTER = 2
STACK_BYTES = 256 << 20  # of the main thread: deep recursion through C needs it
THREAD_STACK_BYTES = 8 << 20  # of a thread that requests no other size
OWN_PID = 0x7FFF_FFFF  # in a filter: the process that installs it; no process has this number

_CAPABILITY_HEADER = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, own process
# Offsets in the interpreter's structures of 3.11: of a thread's state the C frame, of that the
# current Python frame, of that the code.
_C_FRAME_OFFSET, _CURRENT_OFFSET, _CODE_OFFSET = 56, 8, 32

libc = ctypes.CDLL(None, use_errno=True)
_clone = ctypes.PyDLL(None, use_errno=True).syscall  # keeps the interpreter's lock
_X86 = os.uname().machine == "x86_64"
_CLONE = 56 if _X86 else 220
_THREAD_ID_OFFSET = 720 if _X86 else 208  # of the thread's id in glibc's struct pthread


def check(result: int, call: str) -> int:
    """Return the result of a C call; raise OSError, naming the call, if it is -1."""
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{call}: {os.strerror(errno)}")
    return result


def prctl(option: int, argument: object) -> None:
    """Call prctl(2) with one argument. Raises OSError."""
    check(libc.prctl(option, argument, 0, 0, 0), f"prctl {option}")


class Proc:
    """The folder /proc, opened before it goes out of sight."""

    def __init__(self) -> None:
        self.folder = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        # Whether the kernel counts how long a thread waits for a core.
        self.counts_waiting = False
        with contextlib.suppress(OSError):
            self.counts_waiting = any(map(int, self.read("self/schedstat").split()))

    def read(self, path: str, folder: int | None = None) -> bytes:
        """Read a file of /proc, or of an open folder in it."""
        descriptor = os.open(path, os.O_RDONLY, dir_fd=self.folder if folder is None else folder)
        try:
            return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
        finally:
            os.close(descriptor)

    def address_space(self) -> int:
        """Return the calling process's size in bytes."""
        return int(self.read("self/statm").split()[0]) * resource.getpagesize()

    def pids(self) -> set[int]:
        """Return the PIDs of all processes."""
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.folder)
        try:
            return {int(name) for name in os.listdir(folder) if name.isdigit()}
        finally:
            os.close(folder)


def fork_sibling(*, new_pid_namespace: bool) -> int:
    """Fork as os.fork does, but make the new process a child of this process's parent.

    Then one process can be the template of test processes while another watches them. Two steps of
    os.fork are left out. It recreates locks that other threads might hold, and there are no other
    threads here. It calls functions that modules registered, such as a new seed of `random`.
    Raises OSError.
    """
    return check(_clone(*_clone_arguments(new_pid_namespace)), "clone")


@functools.cache
def _clone_arguments(new_pid_namespace: bool) -> tuple[object, ...]:
    """Return the arguments of clone(2) for the only thread of this process and its descendants.

    The C library keeps a thread's id as the owner of recursive locks. A bare clone leaves the
    parent's id there. A thread of the program may get that id from the kernel, and would then pass
    locks that it does not own. So the kernel writes the new id, unless the library keeps the id
    elsewhere.
    """
    flags = signal.SIGCHLD | CLONE_PARENT | (CLONE_NEWPID if new_pid_namespace else 0)
    address = _thread.get_ident() + _THREAD_ID_OFFSET
    if ctypes.c_int.from_address(address).value != _thread.get_native_id():
        return _CLONE, flags, 0, 0, 0, 0
    own_id = ctypes.c_void_p(address)
    last = (own_id, 0) if _X86 else (0, own_id)
    return _CLONE, flags | CLONE_CHILD_SETTID, 0, 0, *last


def capability_sets(*kept: int) -> bytes:
    """Return the argument of `set_capabilities` that keeps these capabilities and no others."""
    mask = sum(1 << number for number in kept)  # all that are kept here are below 32
    return struct.pack("6I", mask, mask, 0, 0, 0, 0)


def set_capabilities(sets: bytes) -> None:
    """Call capset(2) on this process. Raises OSError."""
    check(libc.capset(_CAPABILITY_HEADER, sets), "capset")


class SeccompFilter:
    """A BPF program in the form that the kernel takes."""

    class _Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    def __init__(self, instructions: bytes) -> None:
        self._instructions = ctypes.create_string_buffer(instructions, len(instructions) or 1)
        place = ctypes.cast(self._instructions, ctypes.c_char_p)
        self._program = self._Program(len(instructions) // 8, place)
        self._pointer = ctypes.byref(self._program)
        own_pid = struct.pack("I", OWN_PID)
        self._own_pid_places = [
            offset
            for offset in range(4, len(instructions), 8)
            if instructions[offset : offset + 4] == own_pid
        ]

    def allow_own_signals(self) -> None:
        """Have the filter, once installed, allow signals to this process."""
        for offset in self._own_pid_places:
            struct.pack_into("I", self._instructions, offset, os.getpid())

    def install(self) -> None:
        """Confine this process irrevocably; without instructions, do nothing."""
        if self._program.length:
            result = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self._pointer, 0, 0)
            check(result, "seccomp")


def current_frame(c_frame: int | None, code: CodeType) -> ctypes.c_void_p:
    """Return the place that names the current Python frame, which runs `code`.

    `c_frame` is `c_frame.value` as the caller sees it. While the place holds None, the next frame
    has nothing below it, as a script's has. In other versions of Python nobody reads the place.
    """
    if c_frame is None:
        return ctypes.c_void_p()
    place = ctypes.c_void_p.from_address(c_frame + _CURRENT_OFFSET)
    running = ctypes.c_void_p.from_address((place.value or 0) + _CODE_OFFSET).value
    known = running in (id(code), id(current_frame.__code__))
    return place if known else ctypes.c_void_p()


def _c_frame() -> ctypes.c_void_p:
    """Return the place that names the main thread's current C frame; None where it is unknown."""
    if sys.version_info[:2] != (3, 11):
        return ctypes.c_void_p()
    get_state = ctypes.pythonapi.PyThreadState_Get
    get_state.restype = ctypes.c_void_p
    return ctypes.c_void_p.from_address(get_state() + _C_FRAME_OFFSET)


c_frame = _c_frame()


LOOK_S = 0.1  # how often a test is looked at; a shorter one never is
STOP_S = 1.0  # for a test to stop; a thread that has no core changes nothing meanwhile
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

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the test meanwhile, if it has not ended."""
        signal.pidfd_send_signal(self.process, signal.SIGSTOP)
        given_up = time.monotonic() + STOP_S
        while {state for _, state, _ in self._threads()} - {b"T", b"Z", b"X"}:
            if time.monotonic() > given_up:
                break
            time.sleep(0.001)
        try:
            yield
        finally:
            signal.pidfd_send_signal(self.process, signal.SIGCONT)

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
