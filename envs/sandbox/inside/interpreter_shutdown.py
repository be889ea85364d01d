"""The interpreter's own ending, at a small part of its price.

Py_FinalizeEx takes a forked process 4 ms, 14 with numpy, because it takes apart every module that
the server has loaded. What a program can notice is the end of its own objects: files that are
flushed, `__del__`, `finally` in generators. So these alone are ended here, in Python's order; where
one of them outlives that, held by a module or a thread, the real Py_FinalizeEx follows. Most
programs do not even name anything that could notice, and have their streams flushed only.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import re
import sys
from _io import _IOBase

FLUSH_FAILED = 120  # the exit status of an interpreter that could not write its output
# One of these stands in the source of every program that can notice the end of its objects: what
# makes files and generators, what runs then, and ways to reach these by names that do not show.
NOTICING = re.compile(
    r"__del__|open|\bio\b|IO|[Ff]ile|[Ww]riter|detach|yield|async|weakref|ctypes"
    r"|exec|eval|getattr|setattr|__dict__|import_module|__import__|pickle"
)
# Held here, since the program may have put others in their places.
_collect, _unfreeze, _objects = gc.collect, gc.unfreeze, gc.get_objects
_run_exit_functions, _exit, _py_exit = atexit._run_exitfuncs, os._exit, ctypes.pythonapi.Py_Exit
_modules, _sys = sys.modules, sys.__dict__


def end_interpreter(status: int, program) -> None:
    """End this process as Python does after a program that is to leave `status`. Never returns."""
    if "threading" in _modules:
        _join_threads()
    _run_exit_functions()
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
            _complain(error)
    outlived = program.may_notice and not _end_objects(program)
    if program.may_notice or _sys.get("stdout") is not _sys.get("__stdout__"):
        with contextlib.suppress(BaseException):  # as where Python lets go of it
            _sys["__stdout__"].flush()
    if outlived:
        _unfreeze()  # or what the server has loaded would keep what the program gave it
        _py_exit(status)
    _exit(status)


def _end_objects(program) -> bool:
    """Let the program's objects go; False if some of them are left that may notice their end."""
    _collect()  # which brings them into the order in which they are to end, as layers of a file
    for name in ("stdin", "stdout", "stderr"):
        _sys[name] = _sys.get(f"__{name}__")
    _modules["__main__"] = _modules[program.module] = None
    _collect()
    if program.alive() is not None and "typing" in _modules:
        _forget_annotations()
    files_left = any(issubclass(kind, _IOBase) for kind in set(map(type, _objects())))
    # C's own streams may have been written to through ctypes.
    return program.alive() is None and not files_left and not program.names_ctypes


def _forget_annotations() -> None:
    """Empty the caches of `typing`, as the real ending would: they hold classes of programs."""
    with contextlib.suppress(BaseException):
        for forget in _modules["typing"]._cleanups:
            forget()
    _collect()


def _join_threads() -> None:
    try:
        _modules["threading"]._shutdown()
    except BaseException as error:
        _complain(error)


def _complain(error: BaseException) -> None:
    """Have what failed while Python ends printed: it ends nothing else."""
    with contextlib.suppress(BaseException):
        show(error)


def show(error: BaseException) -> None:
    """Have the program's own hook print what was not caught. Raises what the hook raises."""
    trace = error.__traceback__ and error.__traceback__.tb_next  # without our own frame
    sys.excepthook(type(error), error.with_traceback(trace), trace)
