"""The interpreter that programs see: fresh when they begin, and shut down as Python does.

Py_FinalizeEx takes a forked process 4 ms (14 ms with numpy), because it takes apart every module
that the server has loaded. A program can only notice the end of its own objects: files that are
flushed, `__del__`, `finally` in generators. So only these are ended here, in Python's order. If one
of them survives, held by a module or a thread, the real Py_FinalizeEx follows. Most programs do not
even name anything that could notice, and only have their streams flushed.
"""

from __future__ import annotations

import _sitebuiltins
import _thread
import atexit
import bisect  # noqa: F401  what most programs import is loaded once, here
import builtins
import codecs
import collections  # noqa: F401
import contextlib
import ctypes
import functools  # noqa: F401
import gc
import heapq  # noqa: F401
import io
import itertools  # noqa: F401
import mmap
import operator  # noqa: F401
import os
import re
import resource
import signal
import struct
import sys
import types
from _io import _IOBase
from importlib.machinery import ModuleSpec, PathFinder

from envs.sandbox.inside.emulation import die_of_own_signals, remember_scheduling
from envs.sandbox.inside.kernel import THREAD_STACK_BYTES

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

    from envs.sandbox.inside.program import Program

FLUSH_FAILED = 120  # the exit status of an interpreter that could not write its output
# One of these occurs in the source of every program that can notice the end of its objects:
# makers of files and generators, code that runs at the end, and indirect ways to reach these.
NOTICING = re.compile(
    r"__del__|open|\bio\b|IO|[Ff]ile|[Ww]riter|detach|yield|async|weakref|ctypes"
    r"|exec|eval|getattr|setattr|__dict__|import_module|__import__|pickle"
)
# What Python's own code looks up on types while most programs run, and what these look up.
_LOOKUPS: dict[Any, str] = {
    io.TextIOWrapper: "write flush closed readline read fileno",
    io.BufferedWriter: "write flush closed",
    io.BufferedReader: "fileno",
    io.FileIO: "write fileno readinto readall",
    codecs.getincrementaldecoder("utf-8"): "decode _buffer_decode getstate",
    struct.Struct: "pack_into",
    mmap.mmap: "close",
    types.FrameType: "f_back",
    types.TracebackType: "tb_next",
    types.CodeType: "__class__",
    dict: "get items keys values",
    list: "append pop sort",
    str: "split strip join",
    **dict.fromkeys(
        (AttributeError, IndexError, KeyError, NameError, TypeError, ValueError, ZeroDivisionError),
        "with_traceback __traceback__ __notes__ print_file_and_line",
    ),
}
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
    add_site_builtins()
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
    remember_scheduling()
    compile("", "main.py", "exec")  # the first call makes the types of syntax trees
    gc.collect()
    gc.freeze()


def add_site_builtins() -> None:
    """Add the names of the `site` module, which is not run since it looks for files."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    for name in ("copyright", "credits", "license"):
        setattr(builtins, name, _sitebuiltins._Printer(name, sys.copyright))
    builtins.help = _sitebuiltins._Helper()


def fill_lookup_cache(functions: Iterable[Any], kinds: Iterable[type]) -> None:
    """Look up on types what a test process will, so that a fork of this process finds it cached.

    CPython keeps what it finds on types in one table. To add an entry is to write to the table and
    to the name's object, and a forked process copies each page that it writes to. A test process
    would add about fifty entries.
    """
    names = sorted({name for function in functions for name in function.__code__.co_names})
    for kind in (types.ModuleType, *kinds):
        for name in names:
            getattr(kind, name, None)
    for kind, words in _LOOKUPS.items():
        for word in words.split():
            getattr(kind, sys.intern(word), None)  # entries are for one object, not for equal text


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


# ---- shutdown ----


def shut_down(status: int, program: Program) -> NoReturn:
    """End this process as Python does after a program with exit status `status`."""
    if "threading" in _modules:
        _join_threads()
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
    survived = program.may_notice and not _end_objects(program)
    if program.may_notice or _sys.get("stdout") is not _sys.get("__stdout__"):
        with contextlib.suppress(BaseException):  # Python releases it here
            _sys["__stdout__"].flush()
    if survived:
        _unfreeze()  # else objects that the server has loaded would keep those of the program
        _py_exit(status)
    _exit(status)


def _end_objects(program: Program) -> bool:
    """Release the program's objects; False if some survive that may notice their end."""
    _collect()  # brings them into the order in which they have to end, as layers of a file
    for name in ("stdin", "stdout", "stderr"):
        _sys[name] = _sys.get(f"__{name}__")
    _modules["__main__"] = _modules[program.module_name] = None
    _collect()
    if program.module_loader() is not None and "typing" in _modules:
        _clear_typing_caches()
    files_left = any(issubclass(kind, _IOBase) for kind in set(map(type, _objects())))
    # The program may have written to C's own streams through ctypes.
    return program.module_loader() is None and not files_left and not program.names_ctypes


def _clear_typing_caches() -> None:
    """Empty the caches of `typing`, which hold classes of programs, as Python's shutdown does."""
    with contextlib.suppress(BaseException):
        for clear in _modules["typing"]._cleanups:
            clear()
    _collect()


def _join_threads() -> None:
    try:
        _modules["threading"]._shutdown()
    except BaseException as error:
        _print_ignored(error)


def _print_ignored(error: BaseException) -> None:
    """Print an error that happened during shutdown; it does not stop the shutdown."""
    with contextlib.suppress(BaseException):
        print_uncaught(error)


def print_uncaught(error: BaseException) -> None:
    """Print an uncaught exception by the program's own hook. Raises what the hook raises."""
    trace = error.__traceback__ and error.__traceback__.tb_next  # without our own frame
    sys.excepthook(type(error), error.with_traceback(trace), trace)
