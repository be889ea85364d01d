"""One program: its header, its compilation, its module, and calls of its function.

The server computes the header. A forked process copies each page that it writes to, so parsing
JSON or searching a text there costs more than compiling a short program. The server is never
forked.
"""

from __future__ import annotations

import _thread
import builtins
import contextlib
import marshal
import math
import os
import re
import resource
import sys
import time
import types
import weakref

from envs.sandbox.inside.emulation import STDOUT_NAMES, share_between_threads, share_stdout
from envs.sandbox.inside.folder import PROGRAM_NAME
from envs.sandbox.inside.framing import report
from envs.sandbox.inside.interpreter import NOTICING
from envs.sandbox.inside.kernel import STACK_BYTES, THREAD_STACK_BYTES
from envs.sandbox.inside.values import decode, encode

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from typing import Any

    from envs.sandbox.inside.server import Server

# Loaded if the program's text names them: once per program, not once per test.
ON_DEMAND = (
    *("array", "copy", "dataclasses", "datetime", "decimal", "fractions", "multiprocessing"),
    *("numpy", "queue", "random", "statistics", "string", "threading", "traceback", "typing"),
)
_ON_DEMAND_NAME = re.compile(rf"\b(?:{'|'.join(ON_DEMAND)})\b")

# One of these occurs in a program that signals itself, or that looks at its frames. For others
# nothing is prepared: each page that a test process touches for that would be copied.
_SIGNALLING = "kill", "signal", "ctypes"
_SEEING_FRAMES = "frame", "inspect", "traceback", "f_back", "stack"

# Address space above the memory limit. It is larger for programs that start threads, whose stacks
# are reserved whole but seldom used. The peak resident size decides on memory in use.
ALLOWANCE_BYTES, THREADS_ALLOWANCE_BYTES = 64 << 20, 1024 << 20
MAX_FDS = 256
# Compiling a shorter text takes little of the allowance; after a longer one, the address space is
# measured.
SHORT_CHARS = 10_000

# The names that call-based problems rely on, as the sites that they come from define them.
PRELUDE = """
from typing import *
from collections import *
from functools import *
from itertools import *
from heapq import *
from bisect import *
from math import *
from builtins import pow
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
"""


# ---- the header ----


def program_header(limits: dict[str, Any], source: bytes) -> bytes:
    """Return the limits, the program as a text, and what that text names, in marshal's format."""
    text = source.decode("utf-8", "surrogatepass").removeprefix("\ufeff")
    names = set(_ON_DEMAND_NAME.findall(text))
    facts = {
        "source": text,
        "modules": tuple(name for name in ON_DEMAND if name in names),
        "threads": "thread" in text.lower() or "multiprocessing" in names,
        "signals": any(word in text for word in _SIGNALLING),
        "sees_frames": any(word in text for word in _SEEING_FRAMES),
        "names_stdout": any(name in text for name in STDOUT_NAMES),
        "may_notice": bool(NOTICING.search(text)),
        "names_ctypes": "ctypes" in text,
    }
    return marshal.dumps(limits | facts)


def read_program_header(file: int) -> dict[str, Any]:
    """Invert `program_header`: read a header from a file, and close the file."""
    data = os.pread(file, os.lseek(file, 0, os.SEEK_END), 0)
    os.close(file)
    return marshal.loads(data)


# ---- compilation ----


def prepare_program(server: Server, file: int) -> Program | dict[str, Any]:
    """Return the program in a file, ready but for its module; or the report of a refusal."""
    header = read_program_header(file)
    code = compile_program(header, server.base_address_space)
    if isinstance(code, dict):
        return code
    if header["threads"]:
        bound_thread_stacks(max(header["memory_mb"] << 20, STACK_BYTES))
    for name in header["modules"]:
        with contextlib.suppress(ImportError):  # the program's own import will raise it
            __import__(name)
    if "multiprocessing" in header["modules"]:
        share_between_threads()
    if header["names_stdout"]:
        share_stdout()
    return Program(server, code, header)


def compile_program(
    header: dict[str, Any], base_address_space: int
) -> types.CodeType | dict[str, Any]:
    """Return the code, or the report of why there is none; limits guard against hostile sources.

    The source is a text already, so an encoding that it declares is ignored. A source that crashes
    the compiler ends this process; the server reports that.
    """
    cpu, address_space = resource.RLIMIT_CPU, resource.RLIMIT_AS
    old_cpu, old_address_space = resource.getrlimit(cpu), resource.getrlimit(address_space)
    most_bytes = base_address_space + (header["memory_mb"] << 20)
    resource.setrlimit(cpu, (math.ceil(header["cpu_s"]) + 1, old_cpu[1]))
    resource.setrlimit(address_space, (most_bytes, old_address_space[1]))
    try:
        return compile(header["source"], "main.py", "exec", dont_inherit=True)
    except MemoryError:
        return report("MEMORY_LIMIT", "the compiler ran out of memory")
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        return report("SYNTAX_ERROR", f"{type(error).__name__}: {error}")
    finally:
        resource.setrlimit(cpu, old_cpu)
        resource.setrlimit(address_space, old_address_space)


def bound_thread_stacks(most: int) -> None:
    """Have threading.stack_size reserve at most `most` bytes.

    Programs request 1 GB to recurse deeply. Stack beyond the memory limit could not be used, and
    is not reserved, since the address space is limited too.
    """
    reserve, requested = _thread.stack_size, 0

    def stack_size(size: int = 0, /) -> int:
        nonlocal requested
        reserve(min(size, most) or THREAD_STACK_BYTES)
        before, requested = requested, size
        return before

    _thread.stack_size = stack_size


# ---- the program ----


class SourceLoader:
    """Gives `inspect` and `linecache` the program's source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str:
        """Return the text of the only module."""
        return self._source


class Program:
    """One compiled program, ready to run. Limits that do not hinder this process are set."""

    def __init__(self, server: Server, code: types.CodeType, header: dict[str, Any]) -> None:
        self.server, self.code, self.header = server, code, header
        self.fn_name: str | None = header["fn_name"]
        self.folder = server.folder.path if server.folder and header["uses_files"] else None
        self.signals, self.sees_frames = header["signals"], header["sees_frames"]
        self.may_notice, self.names_ctypes = header["may_notice"], header["names_ctypes"]
        self.names: dict[str, Any] | None = None  # of the program's module
        sys.argv, sys.orig_argv = ["main.py"], ["python3", "main.py"]
        if self.folder:
            sys.path.insert(0, self.folder)
        # Limits of a test process, above what was used before its program begins. The server
        # checks the exact ones.
        self.child_limits = (
            (resource.RLIMIT_CPU, math.ceil(header["cpu_s"] + time.process_time()) + 1),
            (resource.RLIMIT_FSIZE, (header["output_mb"] << 20) + 1),
        )
        self._limit_all(THREADS_ALLOWANCE_BYTES if header["threads"] else ALLOWANCE_BYTES)

    def open_module(self) -> None:
        """Make the module that the program will run as.

        A program whose function is called counts as imported, so it is not `__main__`: code below
        that guard is for scripts.
        """
        self.module_name = "main" if self.fn_name else "__main__"
        module = types.ModuleType(self.module_name)
        sys.modules["__main__"] = sys.modules[self.module_name] = module
        self.names, loader = module.__dict__, SourceLoader(self.header["source"])
        self.names |= {"__builtins__": builtins, "__annotations__": {}, "__loader__": loader}
        self.names |= {"__file__": f"{self.folder or ''}/{PROGRAM_NAME}", "__cached__": None}
        self.module_loader = weakref.ref(loader)  # alive as long as these names are
        if self.fn_name:
            exec(PRELUDE, self.names)

    def _limit_all(self, allowance: int) -> None:
        header, server = self.header, self.server
        short = not header["modules"] and len(header["source"]) < SHORT_CHARS
        base = server.base_address_space if short else server.address_space()
        limits = [
            (resource.RLIMIT_AS, base + (header["memory_mb"] << 20) + allowance),
            (resource.RLIMIT_NOFILE, MAX_FDS),
            (resource.RLIMIT_MEMLOCK, 0),
        ]
        if server.config["max_tasks"] is not None:
            limits.append((resource.RLIMIT_NPROC, server.config["max_tasks"]))
        for limit, value in limits:
            resource.setrlimit(limit, (value, value))


# ---- calls ----


def call_function(names: dict[str, Any], function: str, arguments: str) -> bytes:
    """Call a function, or the method of Solution, with encoded arguments; return its result so."""
    solution: Any = names.get("Solution")
    target = getattr(solution(), function) if hasattr(solution, function) else names[function]
    return encode(target(*decode(arguments))).encode()
