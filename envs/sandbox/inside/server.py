"""The fork server: holds the channel and starts a runner for each program.

It reads no program and no input itself, and so has nothing that a test process could inherit: each
runner, forked afresh, reads its own program, and each input just before its test.
"""

from __future__ import annotations

import _sitebuiltins
import base64
import bisect  # noqa: F401  what most programs import is loaded once, here
import builtins
import collections  # noqa: F401
import contextlib
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
import sys
from importlib.machinery import ModuleSpec, PathFinder

from envs.sandbox.inside.channel import COMPILED, PROGRAM, READY, Channel, report
from envs.sandbox.inside.confine import STREAMS
from envs.sandbox.inside.kernel import PR_SET_NO_NEW_PRIVS, SeccompFilter, prctl
from envs.sandbox.inside.runner import run_program

DEFAULTS = {
    "uid": None,  # the user of test processes; None: the worker's own
    "gid": None,
    "pid_namespace": False,  # a fresh PID namespace per test (needs CAP_SYS_ADMIN)
    "seccomp": "",  # base64 of the BPF program that each test process installs
    "packages": "",  # the folder that holds numpy
    "environment": {},  # environment variables of programs
    "max_tasks": 64,  # RLIMIT_NPROC of a test process; None: not set
}
COMPILER_SIGNALS = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)


class Server:
    """The root process of the cage."""

    def __init__(self, config: dict) -> None:
        self.config = {**DEFAULTS, **config}
        self.channel = take_channel()
        # Opened now, since /proc may be out of sight later.
        self.proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        self.pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self.started = mmap.mmap(-1, 1)  # shared: set when a test process comes to its program
        self.ruleset = None  # of Landlock, where namespaces are refused
        # Only below PID 1 of a namespace of its own does kill(-1) reach test processes alone.
        self.owns_namespace = os.getpid() == 1
        self.filter = SeccompFilter(base64.b64decode(self.config["seccomp"]))
        self._stdio: int | None = None
        self._oom_counter, self._oom_kills = -1, 0

    def open_stdio(self, folder: str) -> None:
        """Make the files of the standard streams in a folder, where programs have no /proc.

        Without that, these files have no name, and programs reach them through /proc.
        """
        self._stdio = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for file in self.test_files(os.O_CREAT):
            os.fchmod(file, 0o666)
            os.close(file)

    def test_files(self, further: int = 0) -> list[int]:
        """Empty files for the stdin and stdout of one test; it is the only one now."""
        if self._stdio is None:
            return [os.memfd_create(name, os.MFD_CLOEXEC) for name in STREAMS]
        flags = os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC | further
        return [os.open(name, flags, dir_fd=self._stdio) for name in STREAMS]

    def serve(self) -> None:
        """Run programs until the host closes the channel. Never returns."""
        prepare_interpreter(self.config["packages"], self.config["environment"])
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        self.channel.send(READY, {"python": sys.version.split()[0]})
        while True:
            kind, length = self.channel.read_header()
            if kind != PROGRAM:
                raise RuntimeError(f"a frame of kind {kind} where a program was due")
            pid = os.fork()
            if pid == 0:
                run_program(self, length)
            self.await_runner(pid)

    def await_runner(self, pid: int) -> None:
        """Wait for a runner's end; that the compiler crashed in it is the program's doing."""
        ended, status = 0, 0
        while ended != pid:
            ended, status = os.wait()
        if status == 0:
            return
        number = os.WTERMSIG(status)
        if number not in COMPILER_SIGNALS:
            os._exit(1)
        outcome = "TIME_LIMIT" if number == signal.SIGXCPU else "RUNTIME_ERROR"
        self.channel.send(COMPILED, report(outcome, f"the compiler ended by signal {number}"))
        self.channel.skip_to_end()

    def address_space(self) -> int:
        """The calling process's size in bytes."""
        return int(self._look_up("self/statm").split()[0]) * resource.getpagesize()

    def waits_for_core(self, process: int) -> tuple[float, bool]:
        """Seconds that a process, given by its pidfd, waited for a core, and whether it could run
        now: then it runs, or waits in addition to these seconds.

        Of its living threads the one that waited longest counts: a sum would let threads that
        stand in each other's way buy time. 0 where the kernel keeps no such statistics.
        """
        longest, runnable = 0, False
        with contextlib.suppress(OSError):
            pid = re.search(rb"Pid:\t(\d+)", self._look_up(f"self/fdinfo/{process}"))
            tasks = os.open(f"{int(pid[1])}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.proc)
            try:
                for task in os.listdir(tasks):
                    state = self._look_up(f"{int(pid[1])}/task/{task}/stat").rpartition(b")")[2]
                    runnable = runnable or state.split()[0] == b"R"
                    fields = self._look_up(f"{int(pid[1])}/task/{task}/schedstat").split()
                    longest = max(longest, int(fields[1]))
            finally:
                os.close(tasks)
        return longest / 1e9, runnable

    def _look_up(self, path: str) -> bytes:
        """A short file of /proc."""
        descriptor = os.open(path, os.O_RDONLY, dir_fd=self.proc)
        try:
            return os.read(descriptor, 1000)
        finally:
            os.close(descriptor)

    def suffer_first(self) -> None:
        """Make the calling process and its children what the kernel kills when memory is out."""
        descriptor = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=self.proc)
        os.write(descriptor, b"1000")
        os.close(descriptor)

    def count_oom_kills(self) -> None:
        """Have `oom_killed` look at this container's counter of out-of-memory kills."""
        for name in ("memory.events", "memory/memory.oom_control"):  # cgroup v2, v1
            with contextlib.suppress(OSError):
                self._oom_counter = os.open(f"/sys/fs/cgroup/{name}", os.O_RDONLY)
                return

    def oom_killed(self) -> bool:
        """True if the kernel killed here for lack of memory since the last call.

        Outside of a container, where the counter would be of the host or of the user's session,
        nobody but the kernel kills a test process with SIGKILL.
        """
        if self._oom_counter < 0:
            return True
        found = re.search(rb"oom_kill (\d+)", os.pread(self._oom_counter, 1000, 0))
        before, self._oom_kills = self._oom_kills, int(found[1]) if found else 0
        return self._oom_kills > before


def take_channel() -> Channel:
    """Move the stream from descriptors 0 and 1, which belong to programs."""
    channel = Channel(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return channel


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
    open_streams()
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
