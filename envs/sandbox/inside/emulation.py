"""What programs find in place of calls that the sandbox refuses, but that honest programs make.

Only a program's own process is concerned, and none of it has an effect outside: priority and
affinity are remembered, but do not change; locks between processes are locks between threads, since
there are no other processes.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import os
import signal
import sys

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

STDOUT_NAMES = frozenset(("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"))
_LOWEST_PRIORITY = 19
# The default action on these signals does not end a process.
_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
_exit = os._exit


# ---- signals ----


def die_of_own_signals() -> None:
    """Have a signal to oneself end the process where its default action is to do so.

    The first process of a PID namespace ignores such signals.
    """
    send, raise_it, kill_number = os.kill, signal.raise_signal, signal.SIGKILL

    def end_if_fatal(number: int) -> None:
        if signal.getsignal(number) is signal.SIG_DFL and number not in _HARMLESS:
            _exit(128 + number)

    @functools.wraps(send)
    def kill(pid: int, signal: int, /) -> None:
        if pid == os.getpid() and signal == kill_number:  # would look like a lack of memory
            _exit(128 + signal)
        send(pid, signal)
        if signal and pid == os.getpid():
            end_if_fatal(signal)

    @functools.wraps(raise_it)
    def raise_signal(signalnum: int, /) -> None:
        if signalnum == kill_number:
            kill(os.getpid(), signalnum)
        raise_it(signalnum)
        end_if_fatal(signalnum)

    os.kill, signal.raise_signal = kill, raise_signal
    sys.modules["posix"].kill = kill  # type: ignore[attr-defined]


# ---- priority and affinity ----


def remember_scheduling() -> None:
    """Have a process set its own priority and affinity as far as it may, without an effect."""
    niceness, cores = 0, frozenset(os.sched_getaffinity(0))
    get_affinity, set_affinity = os.sched_getaffinity, os.sched_setaffinity
    get_priority, set_priority = os.getpriority, os.setpriority

    def own(pid: int) -> bool:
        return pid in (0, os.getpid())

    @functools.wraps(os.nice)
    def nice(increment: int, /) -> int:
        nonlocal niceness
        if increment < 0:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        niceness = min(niceness + increment, _LOWEST_PRIORITY)
        return niceness

    @functools.wraps(get_priority)
    def getpriority(which: int, who: int) -> int:
        mine = which == os.PRIO_PROCESS and own(who)
        return niceness if mine else get_priority(which, who)

    @functools.wraps(set_priority)
    def setpriority(which: int, who: int, priority: int) -> None:
        nonlocal niceness
        if which == os.PRIO_PROCESS and own(who) and priority >= niceness:
            niceness = min(priority, _LOWEST_PRIORITY)
        else:
            set_priority(which, who, priority)

    @functools.wraps(get_affinity)
    def sched_getaffinity(pid: int, /) -> set[int]:
        return set(cores) if own(pid) else get_affinity(pid)

    @functools.wraps(set_affinity)
    def sched_setaffinity(pid: int, mask: Any, /) -> None:
        nonlocal cores
        mask = frozenset(mask)
        if not own(pid) or not all(type(core) is int for core in mask):
            return set_affinity(pid, mask)
        if not (allowed := mask & get_affinity(0)):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        cores = allowed
        return None

    for call in (nice, getpriority, setpriority, sched_getaffinity, sched_setaffinity):
        setattr(os, call.__name__, call)
        setattr(sys.modules["posix"], call.__name__, call)


# ---- standard output by its name ----


def share_stdout() -> None:
    """Have the names of standard output mean the open stream, as where it is a pipe.

    It is a file here. Opened anew, its beginning would be overwritten.
    """
    open_file, open_descriptor = io.open, os.open

    def is_stdout(path: Any) -> bool:
        with contextlib.suppress(TypeError):
            return os.fspath(path) in STDOUT_NAMES
        return False

    @functools.wraps(open_file)
    def open(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> Any:
        if opener is None and is_stdout(file):
            opener = descriptor_of_stdout
        return open_file(file, mode, buffering, encoding, errors, newline, closefd, opener)

    def descriptor_of_stdout(path: str, flags: int) -> int:
        return os.dup(1)

    @functools.wraps(open_descriptor)
    def os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if is_stdout(path):
            return os.dup(1)
        return open_descriptor(path, flags, mode, dir_fd=dir_fd)

    builtins.open = io.open = open
    os.open = os_open


# ---- multiprocessing ----


class SemLock:
    """The semaphore of `multiprocessing`, for the threads of one process.

    The C library's needs a folder for shared memory.
    """

    SEM_VALUE_MAX = 2**31 - 1
    _RECURSIVE = 0  # the kind

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        import threading

        self.kind, self.maxvalue, self.name = kind, maxvalue, None if unlink else name
        self.handle = id(self)
        self._semaphore = threading.Semaphore(value)
        self._get_ident = threading.get_ident
        self._owner, self._held = 0, 0

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take the lock; return whether it was free in time."""
        if self.kind == self._RECURSIVE and self._is_mine():
            self._held += 1
            return True
        if not block:
            taken = self._semaphore.acquire(blocking=False)
        else:
            taken = self._semaphore.acquire(timeout=None if timeout is None else max(0.0, timeout))
        if taken:
            self._held += 1
            self._owner = self._get_ident()
        return taken

    def release(self) -> None:
        """Give the lock back. Raises AssertionError or ValueError where it was not taken."""
        if self.kind == self._RECURSIVE:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self._held > 1:
                self._held -= 1
                return
        elif self._get_value() >= self.maxvalue:
            raise ValueError("semaphore or lock released too many times")
        self._held -= 1
        self._semaphore.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _count(self) -> int:
        return self._held

    def _is_mine(self) -> bool:
        return self._held > 0 and self._owner == self._get_ident()

    def _get_value(self) -> int:
        return self._semaphore._value

    def _is_zero(self) -> bool:
        return self._get_value() == 0

    def _after_fork(self) -> None:
        self._held = 0


def share_between_threads() -> None:
    """Have locks, queues and values of `multiprocessing` work within this process."""
    import _multiprocessing
    import mmap
    from multiprocessing import heap

    def make_arena(self: Any, size: int, fd: int = -1) -> None:
        self.size, self.fd, self.buffer = size, fd, mmap.mmap(fd, size)

    _multiprocessing.SemLock = SemLock
    heap.Arena.__init__ = make_arena  # type: ignore[method-assign]
