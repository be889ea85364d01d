"""The fork server inside the cage: reads programs and inputs, runs each input in a fresh process.

It stands alone (standard library only, one file), so that it runs from any image, as PID 1:
`python3 -s -S -P -B -W ignore worker.py CONFIG`, CONFIG being a JSON object (see `DEFAULTS`).
Three generations keep secrets apart: the server holds the channel and no data at all; for each
program it forks a runner, which compiles it once; for each input the runner forks a test process,
whose memory therefore holds that program and that input only. Inputs go from the channel into a
memfd through one buffer that is wiped; those not yet read wait in the kernel.
"""

from __future__ import annotations

import base64
import bisect  # noqa: F401  what most programs import is loaded once, here
import builtins
import collections  # noqa: F401
import contextlib
import ctypes
import functools  # noqa: F401
import gc
import heapq  # noqa: F401
import io
import itertools  # noqa: F401
import json
import math
import mmap
import operator  # noqa: F401
import os
import re
import resource
import select
import signal
import struct
import sys
import time
import types

# The frame: kind, payload length. A body: length of the JSON header, the header, raw bytes.
HEADER = struct.Struct(">BI")
PROGRAM, INPUT, RESUME, END = 1, 2, 3, 4  # host to worker
READY, COMPILED, RESULT, ENDED = 17, 18, 19, 20  # worker to host

DEFAULTS = {
    "uid": None,  # what test processes run as; None: the worker's own
    "gid": None,
    "pid_namespace": False,  # a fresh PID namespace per test (needs CAP_SYS_ADMIN)
    "seccomp": "",  # base64 of the BPF program that each test process installs
    "packages": "",  # a folder of further importable packages, e.g. numpy
    "max_tasks": 64,  # RLIMIT_NPROC of a test process; None: not set
}

STACK_BYTES = 256 << 20  # of the main thread: deep recursion through C needs it
THREAD_STACK_BYTES = 16 << 20
# Address space above the memory limit; the larger for programs that start threads, whose stacks are
# reserved whole but seldom touched. What is touched is judged by the peak resident size.
ALLOWANCE_BYTES, THREADS_ALLOWANCE_BYTES = 64 << 20, 640 << 20
STDERR_TAIL = 2000  # characters
CHUNK = 1 << 20
MAX_FDS = 64
# Loaded in the runner when the program's text names them: once per program, not once per test.
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
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
"""

CLONE_NEWPID = 0x20000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Raise OSError where a C call returned -1."""
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result


def join_body(header: dict, data: bytes = b"") -> bytes:
    """A body: JSON header, then raw bytes."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "big") + text + data


def split_body(body: bytes) -> tuple[dict, bytes]:
    """The inverse of `join_body`."""
    end = 4 + int.from_bytes(body[:4], "big")
    return json.loads(body[4:end]), body[end:]


class Channel:
    """The byte stream to the host, read without looking ahead."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        self.buffer = bytearray(CHUNK)

    def read(self, length: int) -> bytes:
        """Exactly `length` bytes. Ends the process when the host is gone."""
        parts = []
        while length:
            part = os.read(self.source, min(length, CHUNK))
            if not part:
                os._exit(0)
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def read_header(self) -> tuple[int, int]:
        return HEADER.unpack(self.read(HEADER.size))

    def move(self, source: int, sink: int, length: int) -> None:
        """Copy `length` bytes between descriptors and leave none of them in memory."""
        view = memoryview(self.buffer)
        while length:
            count = os.readv(source, [view[: min(length, CHUNK)]])
            if not count:
                os._exit(0)
            write_all(sink, view[:count])
            view[:count] = bytes(count)
            length -= count

    def send(self, kind: int, header: dict) -> None:
        body = join_body(header)
        write_all(self.sink, HEADER.pack(kind, len(body)) + body)

    def send_result(self, header: dict, stdout: int, size: int) -> None:
        """A RESULT frame; `size` bytes of standard output come from the file `stdout`."""
        body = join_body(header)
        write_all(self.sink, HEADER.pack(RESULT, len(body) + size) + body)
        os.lseek(stdout, 0, os.SEEK_SET)
        self.move(stdout, self.sink, size)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Server:
    """The root process of the cage. Holds the channel, and starts a runner for each program."""

    def __init__(self, config: dict) -> None:
        self.config = {**DEFAULTS, **config}
        self.channel = self._take_channel()
        self.devnull = os.open(os.devnull, os.O_RDWR)
        self.proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        self.pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self.oom_counter = open_oom_counter()
        self.started = mmap.mmap(-1, 1)  # shared: set when a test process comes to its program
        self.filter = SeccompFilter(base64.b64decode(self.config["seccomp"]))

    @staticmethod
    def _take_channel() -> Channel:
        source, sink = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        return Channel(source, sink)

    def serve(self) -> None:
        """Run programs until the host closes the channel. Never returns."""
        prepare_interpreter(self.config["packages"])
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        self.channel.send(READY, {"python": sys.version.split()[0], "pid": os.getpid()})
        while True:
            kind, length = self.channel.read_header()
            if kind != PROGRAM:
                raise RuntimeError(f"a frame of kind {kind} where a program was due")
            pid = os.fork()
            if pid == 0:
                run_program(self, length)
            self.await_runner(pid)

    def await_runner(self, pid: int) -> None:
        """Wait for a runner's end; one that the compiler crashed is reported as a verdict."""
        status = 0
        while True:
            ended, ended_status = os.wait()
            if ended == pid:
                status = ended_status
                break
        if status == 0:
            return
        number = os.WTERMSIG(status)
        if number not in (signal.SIGXCPU, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
            os._exit(1)
        outcome = "TIME_LIMIT" if number == signal.SIGXCPU else "RUNTIME_ERROR"
        self.channel.send(COMPILED, report(outcome, f"the compiler ended by signal {number}"))
        skip_to_end(self.channel)


def open_oom_counter() -> int | None:
    """The file in which the kernel counts out-of-memory kills of this container, if it is one."""
    for name in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError):
            return os.open(f"/sys/fs/cgroup/{name}", os.O_RDONLY | os.O_CLOEXEC)
    return None


def prepare_interpreter(packages: str) -> None:
    """Make this process what a fresh interpreter would be, so that forks of it are."""
    import _sitebuiltins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    if packages:
        sys.path.append(packages)
    sys.set_int_max_str_digits(0)
    import _thread

    _thread.stack_size(THREAD_STACK_BYTES)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.collect()
    gc.freeze()


def skip_to_end(channel: Channel) -> None:
    """Drop all frames up to the program's END, and acknowledge that."""
    kind = None
    while kind != END:
        kind, length = channel.read_header()
        channel.read(length)
    channel.send(ENDED, {})


def report(outcome: str, stderr: str = "") -> dict:
    """The header that tells of a program that did not come to run."""
    return {
        "outcome": outcome,
        "stderr": stderr[-STDERR_TAIL:],
        "exit_code": None,
        "cpu_s": 0.0,
        "wall_s": 0.0,
    }


# ---- the runner: one per program ----


def run_program(server: Server, length: int) -> None:
    """Compile a program and run it on each input that comes. Never returns."""
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent-death signal")
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")
    channel = server.channel
    limits, source = split_body(channel.read(length))
    base = address_space(server)
    code, problem = compile_program(source, limits, base)
    if code is None:
        channel.send(COMPILED, problem)
        skip_to_end(channel)
        os._exit(0)
    preload(source, limits["fn_name"])
    channel.send(COMPILED, report("FINISHED"))
    allowance = THREADS_ALLOWANCE_BYTES if b"thread" in source.lower() else ALLOWANCE_BYTES
    runner = Runner(server, code, limits, address_space(server) + allowance)
    gc.freeze()
    dropping = False
    while True:
        kind, length = channel.read_header()
        if kind == END:
            channel.send(ENDED, {})
            os._exit(0)
        elif kind == RESUME:
            dropping = False
        elif dropping:
            channel.read(length)
        else:
            dropping = runner.run(length) != "FINISHED"


def address_space(server: Server) -> int:
    """This process's size in bytes."""
    descriptor = os.open("self/statm", os.O_RDONLY, dir_fd=server.proc)
    pages = int(os.read(descriptor, 100).split()[0])
    os.close(descriptor)
    return pages * resource.getpagesize()


def oom_kills(server: Server) -> int:
    """Out-of-memory kills in this container so far; 0 where nobody counts them."""
    if server.oom_counter is None:
        return 0
    found = re.search(rb"oom_kill (\d+)", os.pread(server.oom_counter, 1000, 0))
    return int(found[1]) if found else 0


def compile_program(
    source: bytes, limits: dict, base: int
) -> tuple[types.CodeType | None, dict | None]:
    """The code, or the report of why there is none; under limits, for hostile sources."""
    cpu, space = resource.RLIMIT_CPU, resource.RLIMIT_AS
    old_cpu, old_space = resource.getrlimit(cpu), resource.getrlimit(space)
    resource.setrlimit(cpu, (math.ceil(limits["cpu_s"]) + 1, old_cpu[1]))
    resource.setrlimit(space, (base + (limits["memory_mb"] << 20), old_space[1]))
    try:
        return compile(source, "main.py", "exec", dont_inherit=True), None
    except SyntaxError as error:
        return None, report("SYNTAX_ERROR", f"{type(error).__name__}: {error}")
    except MemoryError:
        return None, report("MEMORY_LIMIT", "the compiler ran out of memory")
    except (ValueError, OverflowError, RecursionError) as error:
        return None, report("SYNTAX_ERROR", f"{type(error).__name__}: {error}")
    finally:
        resource.setrlimit(cpu, old_cpu)
        resource.setrlimit(space, old_space)


def preload(source: bytes, fn_name: str | None) -> None:
    """Import the known modules that the text names, so that its tests need not."""
    words = set(re.findall(rb"\w+", source))
    for name in ON_DEMAND:
        if name.encode() in words or (fn_name and name == "typing"):
            try:
                __import__(name)
            except ImportError:
                continue  # the program will meet the same error, and may handle it


class Runner:
    """Runs one compiled program on one input after another."""

    def __init__(self, server: Server, code: types.CodeType, limits: dict, base: int) -> None:
        self.server, self.code, self.limits = server, code, limits
        self.names = {}  # what the program finds defined
        if limits["fn_name"]:
            exec(CALL_PRELUDE, self.names)
        self.output_bytes = limits["output_mb"] << 20
        self.rlimits = self._rlimits(base)
        # Only below PID 1 of a namespace of its own does kill(-1) reach test processes alone.
        self.owns_namespace = os.getppid() == 1

    def _rlimits(self, base: int) -> list[tuple[int, int]]:
        space = base + (self.limits["memory_mb"] << 20)
        pairs = [
            (resource.RLIMIT_AS, space),
            (resource.RLIMIT_CPU, math.ceil(self.limits["cpu_s"]) + 1),
            (resource.RLIMIT_FSIZE, self.output_bytes + 1),
            (resource.RLIMIT_NOFILE, MAX_FDS),
            (resource.RLIMIT_MEMLOCK, 0),
        ]
        tasks = self.server.config["max_tasks"]
        return pairs if tasks is None else [*pairs, (resource.RLIMIT_NPROC, tasks)]

    def run(self, length: int) -> str:
        """Read one input of `length` bytes, run it, send the result; return the outcome."""
        files = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("in", "out", "err")]
        self.server.channel.move(self.server.channel.source, files[0], length)
        os.lseek(files[0], 0, os.SEEK_SET)
        self.server.started[0] = 0
        kills = oom_kills(self.server)
        started = time.monotonic()
        pid = self.fork(files)
        timed_out = self.watch(pid, started + self.limits["wall_s"])
        status, cpu, peak = self.reap(pid)
        wall = time.monotonic() - started
        sizes = [os.fstat(file).st_size for file in files[1:]]
        stderr = self.tail(files[2], sizes[1])
        late = timed_out or cpu > self.limits["cpu_s"]
        outcome = self.judge(status, late, peak, sizes, stderr)
        if status == signal.SIGKILL and not late and oom_kills(self.server) > kills:
            outcome = "MEMORY_LIMIT"
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
                enter_test(self, files)
            except BaseException as error:  # the cage itself failed: told by `started`
                os.write(2, repr(error).encode())
            finally:
                os._exit(126)
        if nested:
            check(libc.setns(self.server.pid_namespace, CLONE_NEWPID), "setns")
        return pid

    def watch(self, pid: int, deadline: float) -> bool:
        """Wait for the test process's end; kill it at its CPU or wall limit (then True)."""
        clock = (~pid << 3) | 2  # the kernel's name for that process's CPU clock
        handle = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self.server.channel.source, 0)  # POLLHUP alone: the host is gone
        try:
            while True:
                left = deadline - time.monotonic()
                try:
                    left = min(left, self.limits["cpu_s"] - time.clock_gettime(clock))
                except OSError:  # it has just ended
                    left = max(left, 0.001)
                if left <= 0:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    return True
                events = poll.poll(left * 1000 + 1)
                if any(descriptor != handle for descriptor, _ in events):
                    os._exit(0)
                if events:
                    return False
        finally:
            os.close(handle)

    def reap(self, pid: int) -> tuple[int, float, int]:
        """Collect the test process and all it left: (status, CPU seconds, peak bytes)."""
        _, status, usage = os.wait4(pid, 0)
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        while self.owns_namespace:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            try:
                _, _, usage = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu += usage.ru_utime + usage.ru_stime
            peak = max(peak, usage.ru_maxrss)
        return status, cpu, peak << 10

    @staticmethod
    def tail(file: int, size: int) -> str:
        """The end of what was written to standard error."""
        data = os.pread(file, 4 * STDERR_TAIL, max(0, size - 4 * STDERR_TAIL))
        return data.decode("utf-8", "replace")[-STDERR_TAIL:]

    def judge(self, status: int, late: bool, peak: int, sizes: list[int], stderr: str) -> str:
        """The outcome; the first that applies."""
        if not self.server.started[0] and not late:
            return "INFRA_ERROR"
        if late:
            return "TIME_LIMIT"
        if max(sizes) > self.output_bytes:
            return "OUTPUT_LIMIT"
        if peak > self.limits["memory_mb"] << 20:
            return "MEMORY_LIMIT"
        if status:
            last = stderr.rstrip().rpartition("\n")[2]
            return "MEMORY_LIMIT" if last.startswith("MemoryError") else "RUNTIME_ERROR"
        return "FINISHED"


# ---- the test process: one per input ----


def enter_test(runner: Runner, files: list[int]) -> None:
    """Give up all rights and descriptors, then run the program as `__main__`. Never returns."""
    stdin, stdout, stderr = files
    called = runner.limits["fn_name"]
    os.dup2(stdin, 0)
    os.dup2(runner.server.devnull if called else stdout, 1)
    os.dup2(stderr, 2)
    if called:
        os.dup2(stdout, 3)
    drop_rights(runner)
    os.closerange(4 if called else 3, 256)
    runner.server.filter.install()
    open_streams()
    if "random" in sys.modules:
        sys.modules["random"].seed(0)  # the same program draws the same numbers: same verdict
    main = types.ModuleType("__main__")
    main.__dict__.update(runner.names, __builtins__=builtins, __file__="main.py")
    sys.modules["__main__"] = main
    sys.argv = ["main.py"]
    sys.orig_argv = ["python3", "main.py"]
    code = 1
    runner.server.started[0] = 1
    runner.server.started.close()
    try:
        exec(runner.code, main.__dict__)
        if called:
            call(main.__dict__, called)
        code = 0
    except SystemExit as error:
        code = exit_code(error.code)
    except MemoryError:
        os.write(2, b"MemoryError\n")
    except BaseException as error:
        trace = error.__traceback__.tb_next  # without this function's own frame
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    os._exit(finish(code))


class SeccompFilter:
    """A BPF program in the form that the kernel takes."""

    class _Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    def __init__(self, instructions: bytes) -> None:
        self.program = self._Program(len(instructions) // 8, instructions)

    def install(self) -> None:
        """Confine this process for good; without instructions, do nothing."""
        if self.program.length:
            mode = 2  # SECCOMP_MODE_FILTER
            arguments = (PR_SET_SECCOMP, mode, ctypes.byref(self.program), 0, 0)
            check(libc.prctl(*arguments), "seccomp")


def drop_rights(runner: Runner) -> None:
    """Limits, another user, no capabilities."""
    # Where memory runs out, the kernel should take this process and not its server.
    descriptor = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=runner.server.proc)
    os.write(descriptor, b"1000")
    os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for limit, value in runner.rlimits:
        resource.setrlimit(limit, (value, value))
    config = runner.server.config
    if config["uid"] is not None:
        os.setgroups([])
        os.setresgid(config["gid"], config["gid"], config["gid"])
        os.setresuid(config["uid"], config["uid"], config["uid"])
    header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    check(libc.capset(header, bytes(24)), "capset")
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent-death signal")


def open_streams() -> None:
    """sys.stdin, stdout and stderr as a real script has them, on descriptors 0, 1 and 2."""

    def text(raw: io.BufferedIOBase, name: str, errors: str, **options: bool) -> io.TextIOWrapper:
        raw.raw.name = name
        return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, **options)

    def raw(descriptor: int, mode: str) -> io.FileIO:
        return io.FileIO(descriptor, mode, closefd=False)

    reader = io.BufferedReader(raw(0, "rb"), 1 << 16)
    sys.stdin = sys.__stdin__ = text(reader, "<stdin>", "surrogateescape")
    writer = io.BufferedWriter(raw(1, "wb"), 1 << 16)
    sys.stdout = sys.__stdout__ = text(writer, "<stdout>", "surrogateescape")
    writer = io.BufferedWriter(raw(2, "wb"))
    sys.stderr = sys.__stderr__ = text(writer, "<stderr>", "backslashreplace", line_buffering=True)


def call(namespace: dict, name: str) -> None:
    """Call the function (or the method of Solution) on the JSON arguments; write the result."""
    solution = namespace.get("Solution")
    function = getattr(solution(), name) if hasattr(solution, name) else namespace[name]
    arguments = json.loads(sys.stdin.read())
    result = json.dumps(function(*arguments), default=plain).encode()
    write_all(3, result)


def plain(value: object) -> list:
    """Other iterables than lists and tuples, as JSON lists."""
    return list(value)


def exit_code(value: object) -> int:
    """What the interpreter makes of `sys.exit(value)`."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def finish(code: int) -> int:
    """What the interpreter does at its end: join threads, run atexit functions, flush."""
    import atexit

    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except Exception:
        return code or 120
    return code


def grow_stack() -> None:
    """Give the main thread a large stack; only a new process image can have one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    if soft != wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
        os.execv(sys.executable, sys.orig_argv)


if __name__ == "__main__":
    grow_stack()
    Server(json.loads(sys.argv[-1])).serve()
