"""The interpreter that programs see: fresh when they begin, and shut down as Python does.

Py_FinalizeEx takes a forked process 4 ms (14 ms with numpy), because it takes apart every module
that the server has loaded. A program can only notice the end of its own objects: files that are
flushed, `__del__`, `finally` in generators. So only these are ended here, in Python's order. If one
of them survives, held by a module or a thread, the real Py_FinalizeEx follows. Most programs do not
even name anything that could notice, and only have their streams flushed.

A few calls that the sandbox refuses, but that honest programs make, are emulated for the program's
own process: signals to itself, standard output by its name, locks of `multiprocessing`.
"""

from __future__ import annotations

import _sitebuiltins
import _thread
import atexit
import bisect  # noqa: F401  what most programs import is loaded once, here
import builtins
import collections  # noqa: F401
import contextlib
import ctypes
import functools
import gc
import heapq  # noqa: F401
import io
import itertools  # noqa: F401
import operator  # noqa: F401
import os
import re
import resource
import signal
import sys
from _io import _IOBase
from importlib.machinery import ModuleSpec, PathFinder

from envs.sandbox.inside.kernel import THREAD_STACK_BYTES

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

FLUSH_FAILED = 120  # the exit status of an interpreter that could not write its output
# One of these occurs in the source of every program that can notice the end of its objects:
# makers of files and generators, code that runs at the end, and indirect ways to reach these.
NOTICING = re.compile(
    r"__del__|open|\bio\b|IO|[Ff]ile|[Ww]riter|detach|yield|async|weakref|ctypes"
    r"|exec|eval|getattr|setattr|__dict__|import_module|__import__|pickle"
)
STDOUT_NAMES = frozenset(("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"))
# The default action on these signals does not end a process.
_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
# Bound here, since the program may have replaced them.
_collect, _unfreeze, _objects = gc.collect, gc.unfreeze, gc.get_objects
_run_exit_functions, _exit, _py_exit = atexit._run_exitfuncs, os._exit, ctypes.pythonapi.Py_Exit
_modules: dict[str, Any] = sys.modules
_sys: dict[str, Any] = sys.__dict__


# ---- start ----


class PackageFinder:
    """Finds one package in a folder whose other packages programs do not get."""

    def __init__(self, name: str, folder: str) -> None:
        self.name, self.folder = name, folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find a module by its name, as the import system requests it."""
        return PathFinder.find_spec(name, [self.folder]) if name == self.name else None


def prepare_interpreter(packages: str, environment: dict[str, str]) -> None:
    """Make this process equal to a fresh interpreter, so that its forks are too."""
    # The names of the `site` module, which is not run since it looks for files.
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    for name in ("copyright", "credits", "license"):
        setattr(builtins, name, _sitebuiltins._Printer(name, sys.copyright))
    builtins.help = _sitebuiltins._Helper()
    if packages:
        sys.meta_path.append(PackageFinder("numpy", packages))
    os.environ.clear()  # of what a container engine adds
    os.environ.update(environment)
    os.umask(0o022)
    sys.set_int_max_str_digits(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _thread.stack_size(THREAD_STACK_BYTES)
    open_streams()
    die_of_own_signals()
    compile("", "main.py", "exec")  # the first call makes the types of syntax trees
    gc.collect()
    gc.freeze()


def open_streams() -> None:
    """Open sys.stdin, stdout and stderr as a script has them, on descriptors 0, 1 and 2.

    They are made once, here; a test process only puts its own files under the three numbers.
    """

    def add(buffer: Any, name: str, errors: str) -> None:
        buffer.raw.name = f"<{name}>"
        # The interpreter leaves every \r in place, on Linux.
        text: Any = io.TextIOWrapper(
            buffer, encoding="utf-8", errors=errors, newline="\n", line_buffering=name == "stderr"
        )
        text.mode = "r" if name == "stdin" else "w"  # as the interpreter sets it; programs read it
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)

    def raw(descriptor: int, mode: str) -> io.FileIO:
        return io.FileIO(descriptor, mode, closefd=False)

    add(io.BufferedReader(raw(0, "rb"), 1 << 16), "stdin", "surrogateescape")
    add(io.BufferedWriter(raw(1, "wb"), 1 << 16), "stdout", "surrogateescape")
    add(io.BufferedWriter(raw(2, "wb")), "stderr", "backslashreplace")


# ---- emulation ----


def die_of_own_signals() -> None:
    """Have a signal to oneself end the process where its default action is to do so.

    The first process of a PID namespace ignores such signals.
    """
    send, raise_it, kill_number = os.kill, signal.raise_signal, signal.SIGKILL

    def end_if_fatal(number: int) -> None:
        # A SIGKILL would look like one from outside.
        default = number == kill_number or signal.getsignal(number) is signal.SIG_DFL
        if default and number not in _HARMLESS:
            _exit(128 + number)

    @functools.wraps(send)
    def kill(pid: int, signal: int, /) -> None:
        own = bool(signal) and pid == os.getpid()
        if own and signal == kill_number:
            end_if_fatal(signal)
        send(pid, signal)
        if own:
            end_if_fatal(signal)

    @functools.wraps(raise_it)
    def raise_signal(signalnum: int, /) -> None:
        if signalnum == kill_number:
            end_if_fatal(signalnum)
        raise_it(signalnum)
        end_if_fatal(signalnum)

    os.kill, signal.raise_signal = kill, raise_signal
    sys.modules["posix"].kill = kill  # type: ignore[attr-defined]


def share_stdout() -> None:
    """Have the names of standard output mean the open stream, as where it is a pipe.

    It is a file here. Opened anew, its beginning would be overwritten.
    """

    def sharing(call: Callable[..., Any], opened: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def shared(file: Any, *arguments: Any, **options: Any) -> Any:
            with contextlib.suppress(TypeError):
                if os.fspath(file) in STDOUT_NAMES:
                    return opened(os.dup(1), *arguments, **options)
            return call(file, *arguments, **options)

        return shared

    builtins.open = io.open = sharing(io.open, io.open)
    os.open = sharing(os.open, lambda descriptor, *_, **__: descriptor)


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
        timeout = max(0.0, timeout) if block and timeout is not None else None
        if taken := self._semaphore.acquire(block, timeout):
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


# ---- shutdown ----


def shut_down(
    status: int, module: str, may_notice: bool, survivor: Callable[[], object] | None
) -> NoReturn:
    """End this process as Python does after a program with exit status `status`.

    `module`: the name of the program's module. `may_notice`: whether the program can notice the end
    of its objects. `survivor` returns None once they have ended; without it, that is not known.
    """
    if "threading" in _modules:
        try:
            _modules["threading"]._shutdown()
        except BaseException as error:
            _print_ignored(error)
    _run_exit_functions()
    stream: Any
    for stream in (_sys.get("stdout"), _sys.get("stderr")):
        try:
            closed = stream is None or stream.closed
        except BaseException:  # an object of the program's own, or one without its buffer
            closed = False
        try:
            if not closed:
                stream.flush()
        except BaseException as error:
            status = FLUSH_FAILED
            _print_ignored(error)
    survived = may_notice and not _end_objects(module, survivor)
    if may_notice or _sys.get("stdout") is not _sys.get("__stdout__"):
        with contextlib.suppress(BaseException):  # Python releases it here
            _sys["__stdout__"].flush()
    if survived:
        _unfreeze()  # else objects that the server has loaded would keep those of the program
        _py_exit(status)
    _exit(status)


def _end_objects(module: str, survivor: Callable[[], object] | None) -> bool:
    """Release the program's objects; False if some survive that may notice their end."""
    _collect()  # brings them into the order in which they have to end, as layers of a file
    for name in ("stdin", "stdout", "stderr"):
        _sys[name] = _sys.get(f"__{name}__")
    _modules["__main__"] = _modules[module] = None
    _collect()
    files_left = any(issubclass(kind, _IOBase) for kind in set(map(type, _objects())))
    return survivor is not None and survivor() is None and not files_left


def _print_ignored(error: BaseException) -> None:
    """Print an error that happened during shutdown; it does not stop the shutdown."""
    with contextlib.suppress(BaseException):
        print_uncaught(error)


def print_uncaught(error: BaseException) -> None:
    """Print an uncaught exception by the program's own hook. Raises what the hook raises."""
    trace = error.__traceback__ and error.__traceback__.tb_next  # without our own frame
    sys.excepthook(type(error), error.with_traceback(trace), trace)
