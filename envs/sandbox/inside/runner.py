"""The runner: compiles one program and runs it on each of its inputs in a fresh process.

Judged are CPU time (of the process and all it left), the peak resident size, the size of its
output and the exit status. Wall time is a wider net.
"""

from __future__ import annotations

import _thread
import builtins
import contextlib
import gc
import math
import os
import re
import resource
import signal
import sys
import time
import types
import weakref

from envs.sandbox.inside.calls import PRELUDE
from envs.sandbox.inside.channel import (
    COMPILED,
    END,
    ENDED,
    RESUME,
    report,
    split_body,
)
from envs.sandbox.inside.child import become_program
from envs.sandbox.inside.complaints import Complaints
from envs.sandbox.inside.ending import NOTICING
from envs.sandbox.inside.kernel import (
    CLONE_NEWPID,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    STACK_BYTES,
    check,
    libc,
    prctl,
)
from envs.sandbox.inside.watch import watch

# Address space above the memory limit; the larger for programs that start threads, whose stacks are
# reserved whole but seldom touched. What is touched is judged by the peak resident size.
ALLOWANCE_BYTES, THREADS_ALLOWANCE_BYTES = 64 << 20, 640 << 20
THREAD_STACK_BYTES = 16 << 20  # of a thread that asks for no other
MAX_FDS = 64
# Loaded when the program's text names them: once per program, not once per test.
ON_DEMAND = ("array", "copy", "dataclasses", "datetime", "decimal", "fractions", "numpy", "queue")
ON_DEMAND += ("random", "statistics", "string", "threading", "traceback", "typing")


def run_program(server, length: int) -> None:
    """Read a PROGRAM of `length` bytes and serve it until its END. Never returns."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    channel = server.channel
    limits, source = split_body(channel.read(length))
    text = source.decode("utf-8", "surrogatepass").removeprefix("\ufeff")
    code, problem = compile_program(text, limits, server.address_space())
    if code is None:
        channel.send(COMPILED, problem)
        channel.skip_to_end()
        os._exit(0)
    bound_thread_stacks(max(limits["memory_mb"] << 20, STACK_BYTES))
    preload(text)
    runner = Runner(server, text, code, limits)
    channel.send(COMPILED, report("FINISHED"))
    gc.freeze()  # what exists now is copied less when test processes collect garbage
    gc.collect()  # which also empties the free lists, so that they need not
    runner.open_module()
    dropping = False
    while True:
        kind, length = channel.read_header()
        if kind == END:
            channel.send(ENDED, {})
            os._exit(0)
        elif kind == RESUME:
            dropping = False
        elif dropping:
            channel.skip(length)
        else:
            dropping = runner.run(length) != "FINISHED"
            if dropping:
                channel.flush()  # the host has to decide


def compile_program(
    source: str, limits: dict, base: int
) -> tuple[types.CodeType | None, dict | None]:
    """The code, or the report of why there is none; under limits, for hostile sources.

    The source is a text already: what it says of its encoding told how it was read elsewhere.
    A source that crashes the compiler ends this process; the server reports that.
    """
    cpu, space = resource.RLIMIT_CPU, resource.RLIMIT_AS
    old_cpu, old_space = resource.getrlimit(cpu), resource.getrlimit(space)
    resource.setrlimit(cpu, (math.ceil(limits["cpu_s"]) + 1, old_cpu[1]))
    resource.setrlimit(space, (base + (limits["memory_mb"] << 20), old_space[1]))
    try:
        return compile(source, "main.py", "exec", dont_inherit=True), None
    except MemoryError:
        return None, report("MEMORY_LIMIT", "the compiler ran out of memory")
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        return None, report("SYNTAX_ERROR", f"{type(error).__name__}: {error}")
    finally:
        resource.setrlimit(cpu, old_cpu)
        resource.setrlimit(space, old_space)


def preload(source: str) -> None:
    """Import the known modules that the text names, so that its tests need not."""
    words = set(re.findall(r"\w+", source))
    for name in ON_DEMAND:
        if name in words:
            with contextlib.suppress(ImportError):  # the program may handle it, or be told
                __import__(name)


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

    stack_size()
    _thread.stack_size = stack_size


class Loader:
    """Where `inspect` and `linecache` find the program's source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str:
        """The text of the one module that there is."""
        return self._source


class Runner:
    """One compiled program, ready to run."""

    def __init__(self, server, source: str, code: types.CodeType, limits: dict) -> None:
        self.server, self.source, self.code, self.limits = server, source, code, limits
        self.fn_name = limits["fn_name"]
        self.may_notice, self.names_ctypes = bool(NOTICING.search(source)), "ctypes" in source
        self.names: dict | None = None  # of the program's module
        sys.argv, sys.orig_argv = ["main.py"], ["python3", "main.py"]
        self.output_bytes = limits["output_mb"] << 20
        self.memory_bytes = limits["memory_mb"] << 20
        self.child_limits = (
            (resource.RLIMIT_CPU, math.ceil(limits["cpu_s"]) + 1),
            (resource.RLIMIT_FSIZE, self.output_bytes + 1),
        )
        threads = "thread" in source.lower()
        self._limit_all(THREADS_ALLOWANCE_BYTES if threads else ALLOWANCE_BYTES)
        server.suffer_first()
        server.oom_killed()

    def open_module(self) -> None:
        """Make the module that the program will be, in every test process anew.

        One of which a function is called is imported, hence not `__main__`: what stands below that
        guard is for scripts.
        """
        self.module = "main" if self.fn_name else "__main__"
        module = types.ModuleType(self.module)
        sys.modules["__main__"] = sys.modules[self.module] = module
        self.names, loader = module.__dict__, Loader(self.source)
        self.names |= {"__builtins__": builtins, "__annotations__": {}, "__loader__": loader}
        self.names |= {"__file__": "main.py", "__cached__": None}
        self.alive = weakref.ref(loader)  # as long as these names are
        if self.fn_name:
            exec(PRELUDE, self.names)

    def _limit_all(self, allowance: int) -> None:
        """Limits that do not hinder this process: set once, and inherited."""
        limits = [
            (resource.RLIMIT_AS, self.server.address_space() + self.memory_bytes + allowance),
            (resource.RLIMIT_NOFILE, MAX_FDS),
            (resource.RLIMIT_MEMLOCK, 0),
        ]
        if self.server.config["max_tasks"] is not None:
            limits.append((resource.RLIMIT_NPROC, self.server.config["max_tasks"]))
        for limit, value in limits:
            resource.setrlimit(limit, (value, value))

    def run(self, length: int) -> str:
        """Read an input of `length` bytes, run it, send the result; return the outcome."""
        stdin, stdout = self.server.test_files()
        errors = Complaints()
        self.server.channel.read_into(stdin, length)
        os.lseek(stdin, 0, os.SEEK_SET)
        self.server.started[0] = 0
        started = time.monotonic()
        pid = self.fork([stdin, stdout, errors.writer])
        killed = watch(self.server, self.limits, pid, started, errors)
        status, cpu, peak = self.reap(pid)
        wall = time.monotonic() - started
        errors.drain()
        size = os.fstat(stdout).st_size
        if cpu > self.limits["cpu_s"]:
            killed = "TIME_LIMIT"
        outcome = killed or self.outcome(status, peak, size, errors.tail)
        outcome = outcome if self.server.started[0] else "INFRA_ERROR"
        result = {
            "outcome": outcome,
            "stderr": errors.tail,
            "exit_code": os.waitstatus_to_exitcode(status),
            "cpu_s": round(cpu, 6),
            "wall_s": round(wall, 6),
        }
        self.server.channel.send_result(result, stdout, min(size, self.output_bytes))
        for file in (stdin, stdout):
            os.close(file)
        errors.close()
        return outcome

    def fork(self, files: list[int]) -> int:
        """Start the test process; return its PID."""
        nested = self.server.config["pid_namespace"]
        if nested:
            check(libc.unshare(CLONE_NEWPID), "unshare")
        pid = os.fork()
        if pid == 0:
            try:
                become_program(self, files)
            except BaseException as error:  # the cage itself failed: told by `started`
                os.write(2, repr(error).encode())
            finally:
                os._exit(126)
        if nested:  # back to the own namespace, or the next unshare would be refused
            check(libc.setns(self.server.pid_namespace, CLONE_NEWPID), "setns")
        return pid

    def reap(self, pid: int) -> tuple[int, float, int]:
        """Collect the test process and all it left: (status, CPU seconds, peak bytes)."""
        _, status, usage = os.wait4(pid, 0)
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        while self.server.owns_namespace:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            try:
                _, _, usage = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu += usage.ru_utime + usage.ru_stime
            peak = max(peak, usage.ru_maxrss)
        return status, cpu, peak << 10

    def outcome(self, status: int, peak: int, written: int, stderr: str) -> str:
        """Of one that ended by itself: the first that applies. `status` is wait(2)'s."""
        if written > self.output_bytes:
            return "OUTPUT_LIMIT"
        if peak > self.memory_bytes:
            return "MEMORY_LIMIT"
        if status == 0:
            return "FINISHED"
        last_line = stderr.rstrip().rpartition("\n")[2]
        starved = last_line.startswith("MemoryError")
        starved = starved or (status == signal.SIGKILL and self.server.oom_killed())
        return "MEMORY_LIMIT" if starved else "RUNTIME_ERROR"
