"""What is forked from the zygote: a first test, or what further tests of a program are forked from.

Both read the program from a file that they were given, and compile it. Neither sees an input but
its own test's, and neither hears the host.
"""

from __future__ import annotations

import _thread
import builtins
import contextlib
import gc
import math
import os
import resource
import signal
import sys
import time
import types
import weakref
from _socket import socket
from collections.abc import Callable
from functools import partial

from envs.sandbox.inside.calls import PRELUDE
from envs.sandbox.inside.child import become_program, become_user
from envs.sandbox.inside.framing import join_body, report, write_all
from envs.sandbox.inside.kernel import (
    PR_SET_PDEATHSIG,
    STACK_BYTES,
    THREAD_STACK_BYTES,
    fork_sibling,
    prctl,
)
from envs.sandbox.inside.program_header import read_briefing
from envs.sandbox.inside.zygote import RUNNER, SWEEPER, TEST, serve_forks, socket_of

# Address space above the memory limit; the larger for programs that start threads, whose stacks
# are
# reserved whole but seldom touched. What is touched is judged by the peak resident size.
ALLOWANCE_BYTES, THREADS_ALLOWANCE_BYTES = 64 << 20, 640 << 20
MAX_FDS = 64
# Compiling less than this takes little of the allowance; after more, the address space is
# measured.
SHORT_CHARS = 10_000
_COMPILED = join_body(report("FINISHED"))


def start_process(server, end: socket, kind: bytes, files: tuple[int, ...]) -> int:
    """What the zygote forks: a shot, a runner, or one that ends all that tests have left."""
    return spawn(server, kind, _be_first, end, kind, files)


def _be_first(server, end: socket, kind: bytes, files: tuple[int, ...]) -> None:
    if kind == TEST:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        shoot(server, files)
    elif kind == RUNNER:
        end.close()
        serve_program(server, *files)
    elif kind == SWEEPER:
        sweep(server)


def spawn(server, kind: bytes, be: Callable[..., None], *arguments: object) -> int:
    """A process that does `be` and nothing else; a test has a PID namespace where there are any."""
    pid = fork_sibling(new_pid_namespace=kind == TEST and server.config["pid_namespace"])
    if pid == 0:
        try:
            be(server, *arguments)
        except BaseException as error:  # the cage itself failed: told by the server's `stage`
            os.write(2, repr(error).encode())
        finally:
            os._exit(126)
    return pid


def sweep(server) -> None:
    """End all processes of the user that test processes are."""
    become_user(server)
    os.kill(-1, signal.SIGKILL)


def shoot(server, files: tuple[int, ...]) -> None:
    """Be the program in the first of the files, on the other three. Never returns."""
    program = prepare(server, files[0])
    if isinstance(program, dict):
        write_all(files[-1], program["stderr"].encode("utf-8", "replace"))
        server.stage.refuse(program["outcome"])
        os._exit(0)
    gc.freeze()  # what exists now is copied less when it collects garbage
    program.open_module()
    become_program(program, files[1:])


def serve_program(server, file: int, end: int) -> None:
    """Compile the program in a file, tell over a socket what came of it, and be forked for each of
    its tests, until that socket is closed. Never returns.

    The tests are the server's children, and it watches them: every page that this process writes to
    after a fork brings a fault.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    told = socket_of(end)
    program = prepare(server, file)
    if isinstance(program, dict):
        told.send(join_body(program))
        os._exit(0)
    told.send(_COMPILED)
    gc.freeze()
    gc.collect()  # which also empties the free lists, so that test processes need not
    program.open_module()
    serve_forks(told, partial(start_test, program))


def start_test(program: Program, kind: bytes, streams: tuple[int, ...]) -> int:
    """What a runner forks."""
    return spawn(program.server, kind, _be_further, program, kind, streams)


def _be_further(server, program: Program, kind: bytes, streams: tuple[int, ...]) -> None:
    if kind == TEST:
        become_program(program, streams)
    elif kind == SWEEPER:
        sweep(server)


def prepare(server, file: int) -> Program | dict:
    """The program in a file, ready but for its module; or the report of why it cannot run."""
    told = read_briefing(file)
    code, problem = compile_program(told, server.space)
    if code is None:
        return problem
    if told["threads"]:
        bound_thread_stacks(max(told["memory_mb"] << 20, STACK_BYTES))
    for name in told["modules"]:
        with contextlib.suppress(ImportError):  # the program may handle it, or be told
            __import__(name)
    return Program(server, code, told)


def compile_program(told: dict, base: int) -> tuple[types.CodeType | None, dict | None]:
    """The code, or the report of why there is none; under limits, for hostile sources.

    The source is a text already: what it says of its encoding told how it was read elsewhere.
    A source that crashes the compiler ends this process; the server reports that.
    """
    cpu, space = resource.RLIMIT_CPU, resource.RLIMIT_AS
    old_cpu, old_space = resource.getrlimit(cpu), resource.getrlimit(space)
    resource.setrlimit(cpu, (math.ceil(told["cpu_s"]) + 1, old_cpu[1]))
    resource.setrlimit(space, (base + (told["memory_mb"] << 20), old_space[1]))
    try:
        return compile(told["source"], "main.py", "exec", dont_inherit=True), None
    except MemoryError:
        return None, report("MEMORY_LIMIT", "the compiler ran out of memory")
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        return None, report("SYNTAX_ERROR", f"{type(error).__name__}: {error}")
    finally:
        resource.setrlimit(cpu, old_cpu)
        resource.setrlimit(space, old_space)


def bound_thread_stacks(most: int) -> None:
    """Have threading.stack_size reserve `most` bytes where it is asked for more.

    Programs ask for 1 GB to recurse deeply; what their memory limit forbids to touch is not
    reserved, since the address space is limited too.
    """
    reserve, wanted = _thread.stack_size, 0

    def stack_size(size: int = 0, /) -> int:
        nonlocal wanted
        reserve(min(size, most) or THREAD_STACK_BYTES)
        before, wanted = wanted, size
        return before

    _thread.stack_size = stack_size


class Loader:
    """Where `inspect` and `linecache` find the program's source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str:
        """The text of the one module that there is."""
        return self._source


class Program:
    """One compiled program, ready to run; limits that do not hinder this process are set."""

    def __init__(self, server, code: types.CodeType, told: dict) -> None:
        self.server, self.code, self.told = server, code, told
        self.fn_name, self.may_notice = told["fn_name"], told["may_notice"]
        self.names_ctypes = told["names_ctypes"]
        self.names: dict | None = None  # of the program's module
        sys.argv, sys.orig_argv = ["main.py"], ["python3", "main.py"]
        # Of a test process, above what was used before its program begins; the server is exact.
        self.child_limits = (
            (resource.RLIMIT_CPU, math.ceil(told["cpu_s"] + time.process_time()) + 1),
            (resource.RLIMIT_FSIZE, (told["output_mb"] << 20) + 1),
        )
        self._limit_all(THREADS_ALLOWANCE_BYTES if told["threads"] else ALLOWANCE_BYTES)

    def open_module(self) -> None:
        """Make the module that the program will be, in every test process anew.

        One of which a function is called is imported, hence not `__main__`: what stands below that
        guard is for scripts.
        """
        self.module = "main" if self.fn_name else "__main__"
        module = types.ModuleType(self.module)
        sys.modules["__main__"] = sys.modules[self.module] = module
        self.names, loader = module.__dict__, Loader(self.told["source"])
        self.names |= {"__builtins__": builtins, "__annotations__": {}, "__loader__": loader}
        self.names |= {"__file__": "main.py", "__cached__": None}
        self.alive = weakref.ref(loader)  # as long as these names are
        if self.fn_name:
            exec(PRELUDE, self.names)

    def _limit_all(self, allowance: int) -> None:
        told, server = self.told, self.server
        short = not told["modules"] and len(told["source"]) < SHORT_CHARS
        base = server.space if short else server.address_space()
        limits = [
            (resource.RLIMIT_AS, base + (told["memory_mb"] << 20) + allowance),
            (resource.RLIMIT_NOFILE, MAX_FDS),
            (resource.RLIMIT_MEMLOCK, 0),
        ]
        if server.config["max_tasks"] is not None:
            limits.append((resource.RLIMIT_NPROC, server.config["max_tasks"]))
        for limit, value in limits:
            resource.setrlimit(limit, (value, value))
