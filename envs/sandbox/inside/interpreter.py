"""Makes this process what a fresh interpreter would be, so that forks of it are."""

from __future__ import annotations

import _sitebuiltins
import _thread
import bisect  # noqa: F401  what most programs import is loaded once, here
import builtins
import collections  # noqa: F401
import functools  # noqa: F401
import gc
import heapq  # noqa: F401
import io
import itertools  # noqa: F401
import operator  # noqa: F401
import os
import resource
import signal
import sys
from importlib.machinery import ModuleSpec, PathFinder

from envs.sandbox.inside.kernel import THREAD_STACK_BYTES


class PackageFinder:
    """Finds one package in a folder whose other packages programs are not given."""

    def __init__(self, name: str, folder: str) -> None:
        self.name, self.folder = name, folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As the import system calls it, with the name of a module."""
        return PathFinder.find_spec(name, [self.folder]) if name == self.name else None


def prepare_interpreter(packages: str, environment: dict[str, str]) -> None:
    """Make this process what a fresh interpreter would be, so that forks of it are."""
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
    compile("", "main.py", "exec")  # the first time it makes the types of syntax trees
    gc.collect()
    gc.freeze()


def add_site_builtins() -> None:
    """The names that the `site` module adds: it is not run, since it looks for files."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    for name in ("copyright", "credits", "license"):
        setattr(builtins, name, _sitebuiltins._Printer(name, sys.copyright))
    builtins.help = _sitebuiltins._Helper()


def open_streams() -> None:
    """sys.stdin, stdout and stderr as a real script has them, on descriptors 0, 1 and 2.

    Made once, here: a test process only puts its own files under the three numbers.
    """

    def stream(buffer: io.BufferedIOBase, name: str, errors: str) -> None:
        buffer.raw.name = f"<{name}>"
        # The interpreter leaves every \r in place, on Linux.
        text = io.TextIOWrapper(
            buffer, encoding="utf-8", errors=errors, newline="\n", line_buffering=name == "stderr"
        )
        text.mode = "r" if name == "stdin" else "w"  # as the interpreter has it; programs read it
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)

    def raw(descriptor: int, mode: str) -> io.FileIO:
        return io.FileIO(descriptor, mode, closefd=False)

    stream(io.BufferedReader(raw(0, "rb"), 1 << 16), "stdin", "surrogateescape")
    stream(io.BufferedWriter(raw(1, "wb"), 1 << 16), "stdout", "surrogateescape")
    stream(io.BufferedWriter(raw(2, "wb")), "stderr", "backslashreplace")
