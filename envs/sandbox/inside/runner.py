"""The runner: compiles one program and runs it on each of its inputs in a fresh process.

Judged are CPU time (of the process and all it left), the peak resident size, the sizes of both
outputs and the exit status. Wall time is a wider net.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import math
import os
import re
import resource
import select
import signal
import sys
import time
import types

from envs.sandbox.inside.channel import (
    COMPILED,
    END,
    ENDED,
    HOLD_S,
    PATIENCE,
    RESUME,
    STDERR_TAIL,
    report,
    split_body,
)
from envs.sandbox.inside.child import become_program
from envs.sandbox.inside.kernel import (
    CLONE_NEWPID,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    check,
    libc,
    prctl,
)

# Address space above the memory limit; the larger for programs that start threads, whose stacks are
# reserved whole but seldom touched. What is touched is judged by the peak resident size.
ALLOWANCE_BYTES, THREADS_ALLOWANCE_BYTES = 64 << 20, 640 << 20
MAX_FDS = 64
# Loaded when the program's text names them: once per program, not once per test.
ON_DEMAND = ("array", "copy", "dataclasses", "datetime", "decimal", "fractions", "numpy", "queue")
ON_DEMAND += ("random", "statistics", "string", "threading", "traceback", "typing")
# What call-based problems take for granted, as the sites they come from do.
CALL_PRELUDE = """
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


def run_program(server, length: int) -> None:
    """Read a PROGRAM of `length` bytes and serve it until its END. Never returns."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    channel = server.channel
    limits, source = split_body(channel.read(length))
    code, problem = compile_program(source, limits, server.address_space())
    if code is None:
        channel.send(COMPILED, problem)
        channel.skip_to_end()
        os._exit(0)
    preload(source)
    runner = Runner(server, code, limits, threads=b"thread" in source.lower())
    channel.send(COMPILED, report("FINISHED"))
    gc.freeze()  # what exists now is copied less when test processes collect garbage
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
    source: bytes, limits: dict, base: int
) -> tuple[types.CodeType | None, dict | None]:
    """The code, or the report of why there is none; under limits, for hostile sources.

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


def preload(source: bytes) -> None:
    """Import the known modules that the text names, so that its tests need not."""
    words = set(re.findall(rb"\w+", source))
    for name in ON_DEMAND:
        if name.encode() in words:
            with contextlib.suppress(ImportError):  # the program may handle it, or be told
                __import__(name)


class Runner:
    """One compiled program, ready to run."""

    def __init__(self, server, code: types.CodeType, limits: dict, *, threads: bool) -> None:
        self.server, self.code, self.limits = server, code, limits
        self.fn_name = limits["fn_name"]
        self.names = self._main_module()
        self.output_bytes = limits["output_mb"] << 20
        self.memory_bytes = limits["memory_mb"] << 20
        self.child_limits = (
            (resource.RLIMIT_CPU, math.ceil(limits["cpu_s"]) + 1),
            (resource.RLIMIT_FSIZE, self.output_bytes + 1),
        )
        self._limit_all(THREADS_ALLOWANCE_BYTES if threads else ALLOWANCE_BYTES)
        server.suffer_first()
        server.oom_killed()

    def _main_module(self) -> dict:
        """The names of a fresh `__main__`, the one that the program will be."""
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        sys.argv, sys.orig_argv = ["main.py"], ["python3", "main.py"]
        main.__dict__.update(__builtins__=builtins, __file__="main.py")
        if self.fn_name:
            exec(CALL_PRELUDE, main.__dict__)
        return main.__dict__

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
        files = self.server.test_files()
        self.server.channel.read_into(files[0], length)
        os.lseek(files[0], 0, os.SEEK_SET)
        self.server.started[0] = 0
        started = time.monotonic()
        pid = self.fork(files)
        killed = self.watch(pid, started)
        status, cpu, peak = self.reap(pid)
        wall = time.monotonic() - started
        sizes = [os.fstat(file).st_size for file in files[1:]]
        stderr = tail(files[2], sizes[1])
        if cpu > self.limits["cpu_s"]:
            killed = "TIME_LIMIT"
        outcome = self.outcome(status, killed, peak, max(sizes), stderr)
        result = {
            "outcome": outcome,
            "stderr": stderr,
            "exit_code": os.waitstatus_to_exitcode(status),
            "cpu_s": round(cpu, 6),
            "wall_s": round(wall, 6),
        }
        self.server.channel.send_result(result, files[1], min(sizes[0], self.output_bytes))
        for file in files:
            os.close(file)
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

    def watch(self, pid: int, started: float) -> str:
        """Wait for the test process's end; kill it at a limit, and return which outcome that is.

        Wall time in which it could have run, but had no core, is not its own. Where the kernel
        does not tell of it, it is 0.
        """
        deadline = started + self.limits["wall_s"]
        given_up = started + PATIENCE * self.limits["wall_s"]
        clock = (~pid << 3) | 2  # the kernel's name for that process's CPU clock
        handle = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self.server.channel.source, 0)  # POLLHUP alone: the host is gone
        try:
            while True:
                now = time.monotonic()
                if now >= deadline:
                    waited = self.server.time_without_core(handle)
                    deadline = min(started + self.limits["wall_s"] + waited, given_up)
                left = deadline - now
                with contextlib.suppress(OSError):  # it may have ended just now
                    left = min(left, self.limits["cpu_s"] - time.clock_gettime(clock))
                channel = self.server.channel
                pause = min(left, HOLD_S if channel.held else left)
                # Even where none is left: this process may itself have had no core, and be late.
                events = poll.poll(pause * 1000 + 1 if pause > 0 else 0)
                if any(descriptor != handle for descriptor, _ in events):
                    os._exit(0)
                if events:
                    return ""
                if left <= 0:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    return "STARVED" if now >= given_up else "TIME_LIMIT"
                channel.flush()
        finally:
            os.close(handle)

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

    def outcome(self, status: int, killed: str, peak: int, written: int, stderr: str) -> str:
        """The first that applies. `status` is wait(2)'s; sizes are in bytes."""
        if not self.server.started[0]:
            return "INFRA_ERROR"
        if killed:
            return killed
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


def tail(file: int, size: int) -> str:
    """The end of what was written to standard error."""
    most = 4 * STDERR_TAIL
    return os.pread(file, most, max(0, size - most)).decode("utf-8", "replace")[-STDERR_TAIL:]
