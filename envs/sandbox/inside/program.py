"""One program in its process: header, compilation, rights given up, run, calls of its function.

A test process behaves as `python3 main.py` would, with a real stdin and the interpreter's own
shutdown. It is forked from the zygote, a process that is only forked, and so has seen no program
and no input. The server reads programs, inputs and outputs, but is never forked. It requests
processes over a socket, by a byte for their kind and the files for them. A new process is the
server's child.

The zygote forks one-shot tests and runners. Both read the program from a file and compile it. A
one-shot test then becomes the program. A runner is forked for each further test of its program, so
that it is compiled once. Neither sees an input but its own test's, and neither hears the host. The
server computes the header: a forked process copies each page that it writes to, so parsing JSON or
searching a text there costs more than compiling a short program.
"""

from __future__ import annotations

import _signal
import _thread
import builtins
import contextlib
import gc
import marshal
import math
import mmap
import os
import re
import resource
import signal
import struct
import sys
import time
import types
import weakref
from _socket import AF_UNIX, CMSG_SPACE, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket
from _socket import socketpair as _socketpair
from collections.abc import Callable

from envs.sandbox.inside.confinement import PROGRAM_NAME, Confinement, remove_contents
from envs.sandbox.inside.framing import decode, encode, join_body, report, write_all
from envs.sandbox.inside.interpreter import (
    NOTICING,
    STDOUT_NAMES,
    print_uncaught,
    share_between_threads,
    share_stdout,
    shut_down,
)
from envs.sandbox.inside.kernel import (
    PR_SET_PDEATHSIG,
    STACK_BYTES,
    THREAD_STACK_BYTES,
    Proc,
    c_frame,
    current_frame,
    fork_sibling,
    prctl,
)

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

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
RESULT_FILE = 3  # receives a called function's result, out of the reach of print
MAX_RECURSION_LIMIT = 2**31 - 1
_STARTING, _BEGUN = 0, 1
_REFUSALS = {2: "SYNTAX_ERROR", 3: "MEMORY_LIMIT"}
# State; CPU seconds that were used when the program began; the time then.
_STATUS_LAYOUT = struct.Struct("Bdd")

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


class StartupStatus:
    """A shared page that tells the server how far a test process is before its program begins.

    One test process at a time writes to it, and unmaps it afterwards.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _STATUS_LAYOUT.size)

    def reset(self) -> None:
        """Prepare for the next test process."""
        _STATUS_LAYOUT.pack_into(self._page, 0, _STARTING, 0.0, 0.0)

    def begin(self) -> None:
        """Say that the program comes next: time used so far is not its own.

        The server may look at any moment, so the first byte is written last.
        """
        now = time.process_time(), time.monotonic()
        _STATUS_LAYOUT.pack_into(self._page, 0, _STARTING, *now)
        self._page[0] = _BEGUN
        self._page.close()

    def refuse(self, outcome: str) -> None:
        """Say that there is no program to run."""
        self._page[0] = next(code for code, name in _REFUSALS.items() if name == outcome)

    @property
    def refused(self) -> str | None:
        """The outcome of a program that does not compile."""
        return _REFUSALS.get(self._page[0])

    @property
    def begun(self) -> tuple[float, float] | None:
        """CPU seconds used before the program began, and that time; None if it has not begun."""
        state, cpu_s, time_s = _STATUS_LAYOUT.unpack_from(self._page)
        return (cpu_s, time_s) if state == _BEGUN and time_s else None


# ---- header and compilation ----


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

    def __init__(
        self,
        confinement: Confinement,
        startup: StartupStatus,
        code: types.CodeType,
        header: dict[str, Any],
        address_space: int,
    ) -> None:
        self.confinement, self.startup, self.code, self.header = confinement, startup, code, header
        self.fn_name: str | None = header["fn_name"]
        folder = confinement.folder
        self.folder = folder.path if folder and header["uses_files"] else None
        self.names: dict[str, Any] | None = None  # of the program's module
        sys.argv, sys.orig_argv = ["main.py"], ["python3", "main.py"]
        if self.folder:
            sys.path.insert(0, self.folder)
        # Limits of a test process, above what was used before its program begins. The server
        # checks the exact ones. The kernel counts this CPU time in ticks, of which a busy machine
        # charges too many: a kill by it would be no time limit but an end from anywhere.
        self.child_limits = (
            (resource.RLIMIT_CPU, 2 * math.ceil(header["cpu_s"] + time.process_time()) + 1),
            (resource.RLIMIT_FSIZE, (header["output_mb"] << 20) + 1),
        )
        allowance = THREADS_ALLOWANCE_BYTES if header["threads"] else ALLOWANCE_BYTES
        limits = [
            (resource.RLIMIT_AS, address_space + (header["memory_mb"] << 20) + allowance),
            (resource.RLIMIT_NOFILE, MAX_FDS),
            (resource.RLIMIT_MEMLOCK, 0),
        ]
        if confinement.max_tasks is not None:
            limits.append((resource.RLIMIT_NPROC, confinement.max_tasks))
        for limit, value in limits:
            resource.setrlimit(limit, (value, value))

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

    def become(self, files: tuple[int, ...]) -> NoReturn:
        """Run the program on (stdin, stdout, stderr)."""
        if "random" in sys.modules:
            # The same program draws the same numbers, and so gets the same verdict.
            sys.modules["random"].seed(0)
        self.give_up_rights(files)
        self.startup.begin()
        names, self.names = self.names, None
        status = run_program(self, names)
        del names  # nothing but the program itself may keep its objects alive
        # A program that names ctypes may have written to C's own streams.
        survivor = None if self.header["names_ctypes"] else self.module_loader
        shut_down(status, self.module_name, self.header["may_notice"], survivor)

    def give_up_rights(self, files: tuple[int, ...]) -> None:
        """Give up descriptors and rights. Short: each page that it touches has to be copied."""
        confinement, with_folder = self.confinement, self.folder is not None
        os.setsid()  # a signal to its group reaches nobody else
        stdin, stdout, stderr = files
        os.dup2(stdin, 0)
        os.dup2(stderr, 2)
        if self.fn_name:
            # Opened anew: the flags of one open file shared by all programs would be a channel.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(stdout, RESULT_FILE)
        else:
            os.dup2(stdout, 1)
        if self.folder:
            os.chdir(self.folder)
        if confinement.landlock is not None:
            confinement.landlock[with_folder].install()
        os.closerange(RESULT_FILE + 1 if self.fn_name else RESULT_FILE, 256)
        for limit, value in self.child_limits:
            resource.setrlimit(limit, (value, value))
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        confinement.become_test_user()
        # Set again, since a change of user clears it; and the parent may have ended before.
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() not in confinement.own_pids | {0}:  # 0: outside of its PID namespace
            os._exit(1)
        seccomp = confinement.seccomp[with_folder]
        if self.header["signals"]:
            seccomp.allow_own_signals()
        seccomp.install()


def run_program(program: Program, names: dict[str, Any] | None) -> int:
    """Run the program, and call its function if it has one to call; return the exit status."""
    assert names is not None
    try:
        count_recursion_from_here()
        arguments = sys.stdin.read() if program.fn_name else ""  # out of the reach of input()
        if not program.header["sees_frames"]:
            exec(program.code, names)
        else:
            place = current_frame(c_frame.value, run_program.__code__)
            frame, place.value = place.value, None  # no caller is to be seen
            try:
                exec(program.code, names)
            finally:
                place.value = frame
        if program.fn_name:
            write_all(RESULT_FILE, call_function(names, program.fn_name, arguments))
        return 0
    except SystemExit as error:
        return exit_status(error.code)
    except MemoryError:
        os.write(2, b"MemoryError\n")  # a whole traceback would need memory
    except BaseException as error:
        try:
            print_uncaught(error)
        except SystemExit as exit_:  # the program's own hook decides
            return exit_status(exit_.code)
        except BaseException:
            os.write(2, b"an error in sys.excepthook\n")
    return 1


def call_function(names: dict[str, Any], function: str, arguments: str) -> bytes:
    """Call a function, or the method of Solution, with encoded arguments; return its result so."""
    solution: Any = names.get("Solution")
    target = getattr(solution(), function) if hasattr(solution, function) else names[function]
    return encode(target(*decode(arguments))).encode()


def count_recursion_from_here() -> None:
    """Make recursion limits count as in a script, which has nothing below its first frame.

    Otherwise a right program would fail slightly below the limit, and earlier in some tests.
    """
    set_limit, requested = sys.setrecursionlimit, sys.getrecursionlimit()
    below = int(sys.version_info < (3, 12))  # exec itself, which counted as a frame
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frame, below = frame.f_back, below + 1

    def setrecursionlimit(limit: int, /) -> None:
        nonlocal requested
        valid = 0 < limit <= MAX_RECURSION_LIMIT
        set_limit(min(limit + below, MAX_RECURSION_LIMIT) if valid else limit)
        requested = int(limit)

    setrecursionlimit(requested)
    sys.setrecursionlimit, sys.getrecursionlimit = setrecursionlimit, lambda: requested


def exit_status(value: Any) -> int:
    """Return the exit status that the interpreter makes of `sys.exit(value)`."""
    if value is None:
        return 0
    if issubclass(type(value), int):  # whatever its class says of it, or does as an operand
        number = int.__index__(value)
        return (number if -1 << 63 <= number < 1 << 63 else -1) & 0xFF
    with contextlib.suppress(BaseException):
        print(value, file=sys.stderr or sys.__stderr__)
    return 1


TEST, RUNNER, SWEEPER, CLEANER = b"T", b"R", b"S", b"C"
# Compiling a shorter text takes little of the allowance; after a longer one, the address space is
# measured.
SHORT_CHARS = 10_000
_PID_BYTES = _FILE_BYTES = 4
_ANCILLARY_BYTES = CMSG_SPACE(4 * _FILE_BYTES)  # for the files of one request
_COMPILED = join_body(report("FINISHED"))

Run = Callable[[bytes, "tuple[int, ...]"], None]  # of a new process: its kind and its files


# ---- requests for processes ----


def socketpair() -> tuple[socket, socket]:
    """Return two connected ends that keep messages apart."""
    return _socketpair(AF_UNIX, SOCK_SEQPACKET)


class ForkClient:
    """The server's end: requests processes, which become the server's own children."""

    def __init__(self, end: socket) -> None:
        self._end = end

    def fork(self, kind: bytes, files: list[int]) -> int:
        """Return the PID of a new process that got these files. Exits if the other end is gone."""
        rights = struct.pack(f"{len(files)}i", *files)
        try:
            self._end.sendmsg([kind], [(SOL_SOCKET, SCM_RIGHTS, rights)])
            pid = self._end.recv(_PID_BYTES)
        except ConnectionError:
            os._exit(1)
        if not pid:
            os._exit(1)
        return int.from_bytes(pid, "big")


def serve_forks(end: socket, pid_namespace: bool, run: Run) -> NoReturn:
    """Fork a process that only calls `run` for each request, until the other end is closed.

    A test gets a PID namespace where there are any. All of this is short: after a fork, each page
    that either process writes to is copied.
    """
    while True:
        kind, rights, _, _ = end.recvmsg(1, _ANCILLARY_BYTES)
        if not kind:
            os._exit(0)
        data = rights[0][2] if rights else b""
        files = struct.unpack(f"{len(data) // _FILE_BYTES}i", data)
        pid = fork_sibling(new_pid_namespace=kind == TEST and pid_namespace)
        if pid == 0:
            try:
                run(kind, files)
            except BaseException as error:  # the sandbox itself failed: the startup status tells
                os.write(2, repr(error).encode())
            finally:
                os._exit(126)
        end.send(pid.to_bytes(_PID_BYTES, "big"))
        for file in files:
            os.close(file)


# ---- the zygote and its children ----


class Zygote:
    """The template of test processes and runners."""

    def __init__(self, confinement: Confinement, startup: StartupStatus, proc: Proc) -> None:
        self.confinement, self.startup, self.proc = confinement, startup, proc

    def serve(self, end: socket) -> NoReturn:
        """Serve the server's requests, which come over the socket `end`."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        self.confinement.own_pids.add(os.getpid())
        # If memory runs out, the kernel kills this process or its children first.
        victim = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=self.proc.folder)
        os.write(victim, b"1000")
        os.close(victim)
        self.end = end
        self.base_address_space = self.proc.address_space()  # before a program is compiled
        serve_forks(end, self.confinement.pid_namespace, self._run)

    def _run(self, kind: bytes, files: tuple[int, ...]) -> None:
        """Be a one-shot test, a runner, or what removes the traces of tests."""
        if kind == TEST:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            self._run_one_shot(files)
        elif kind == RUNNER:
            self.end.close()
            self._serve_tests(*files)
        else:
            self._remove_traces(kind)

    def _run_one_shot(self, files: tuple[int, ...]) -> NoReturn:
        """Compile the program in the first of the files, and become it on the other three."""
        program = self._prepare(files[0])
        if isinstance(program, dict):
            write_all(files[-1], program["stderr"].encode("utf-8", "replace"))
            self.startup.refuse(program["outcome"])
            os._exit(0)
        gc.freeze()  # existing objects are then copied less when the program collects garbage
        program.open_module()
        program.become(files[1:])

    def _serve_tests(self, file: int, end: int) -> NoReturn:
        """Be a runner: compile the program in a file, and be forked for each of its tests.

        The report of the compilation goes over a socket, over which the requests then come until it
        is closed. The tests are the server's children, and the server watches them: every page that
        this process writes to after a fork costs a fault.
        """
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # Its kind is stated, since a container's filter forbids to ask the kernel for it.
        requests = socket(AF_UNIX, SOCK_SEQPACKET, 0, end)
        program = self._prepare(file)
        if isinstance(program, dict):
            requests.send(join_body(program))
            os._exit(0)
        requests.send(_COMPILED)
        gc.freeze()
        gc.collect()  # also empties the free lists, so that test processes need not
        program.open_module()

        def run(kind: bytes, streams: tuple[int, ...]) -> None:
            if kind == TEST:
                program.become(streams)
            self._remove_traces(kind)

        serve_forks(requests, self.confinement.pid_namespace, run)

    def _prepare(self, file: int) -> Program | dict[str, Any]:
        """Return the program in a file, ready but for its module; or the report of a refusal."""
        header = marshal.loads(os.pread(file, os.lseek(file, 0, os.SEEK_END), 0))
        os.close(file)
        code = compile_program(header, self.base_address_space)
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
        short = not header["modules"] and len(header["source"]) < SHORT_CHARS
        base = self.base_address_space if short else self.proc.address_space()
        return Program(self.confinement, self.startup, code, header, base)

    def _remove_traces(self, kind: bytes) -> None:
        """End the processes that tests have left, or remove the files in their folder."""
        self.confinement.become_test_user()
        if kind == SWEEPER:
            os.kill(-1, signal.SIGKILL)
        elif self.confinement.folder is not None:
            remove_contents(self.confinement.folder.path)
