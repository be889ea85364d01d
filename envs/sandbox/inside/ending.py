"""The interpreter's own ending, at a small part of its price.

Py_FinalizeEx takes a forked process 4 ms, 14 with numpy, because it takes apart every module that
the server has loaded. What a program can notice is the end of its own objects: files that are
flushed, `__del__`, `finally` in generators. So these alone are ended here, in Python's order; where
one of them outlives that, held by a module or a thread, the real Py_FinalizeEx follows.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import sys
from _io import _IOBase
from collections.abc import Callable
from typing import NoReturn

from envs.sandbox.inside.kernel import libc

FLUSH_FAILED = 120  # the exit status of an interpreter that could not write its output
# Held here, since the program may have put others in their places.
_collect, _unfreeze, _objects = gc.collect, gc.unfreeze, gc.get_objects
_run_exit_functions, _exit, _py_exit = atexit._run_exitfuncs, os._exit, ctypes.pythonapi.Py_Exit
_modules = sys.modules


def end_interpreter(status: int, module: str, alive: Callable[[], object]) -> NoReturn:
    """End this process as Python ends it after a program that is to leave `status`.

    `module` is the program's name in sys.modules; `alive`, a weak reference to something that its
    names hold, tells whether they are still there.
    """
    _attempt(_join_threads)
    _attempt(_run_exit_functions)
    status = status if _flush_streams() else FLUSH_FAILED
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, name, getattr(sys, f"__{name}__", None))
    _collect()  # which brings the layers of a file into the order in which they are to be ended
    _modules["__main__"] = _modules[module] = None
    _collect()
    if alive() is not None and _attempt(_forget_annotations):
        _collect()
    if sys.stdout is not None:
        with contextlib.suppress(BaseException):  # as where Python lets go of it
            sys.stdout.flush()
    if alive() is not None or any(issubclass(type(thing), _IOBase) for thing in _objects()):
        _unfreeze()  # or what the server has loaded would keep what the program gave it
        _py_exit(status)
    libc.fflush(None)  # C's own streams, which a program reaches through ctypes
    _exit(status)


def _join_threads() -> None:
    if "threading" in _modules:
        _modules["threading"]._shutdown()


def _forget_annotations() -> None:
    """Empty the caches of `typing`, which hold the classes in annotations: many programs have some.

    The real ending, which they would need otherwise, empties them too.
    """
    if "typing" in _modules:
        for forget in _modules["typing"]._cleanups:
            forget()


def show(error: BaseException) -> None:
    """Have the program's own hook print what was not caught. Raises what the hook raises."""
    trace = error.__traceback__ and error.__traceback__.tb_next  # without our own frame
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _attempt(function: Callable[[], object]) -> bool:
    """Call it; what it raises while Python ends is printed, and ends nothing else."""
    try:
        function()
    except BaseException as error:
        with contextlib.suppress(BaseException):
            show(error)
        return False
    return True


def _flush_streams() -> bool:
    """Flush sys.stdout and sys.stderr, whatever the program made of them; True if both could."""
    flushed = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        if stream is not None and not _closed(stream):
            flushed = _attempt(lambda: stream.flush()) and flushed  # noqa: B023
    return flushed


def _closed(stream: object) -> bool:
    """Whether it says so: one without its buffer cannot tell, and is not."""
    try:
        return bool(getattr(stream, "closed", False))
    except BaseException:
        return False
