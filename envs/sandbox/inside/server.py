"""The fork server: holds the channel to the host.

It reads programs, inputs and outputs, and is never forked. Test processes are forked from the
zygote, which has seen none of these. A one-shot test is one process that compiles a program and
becomes it. For further tests, a runner compiles the program once and is forked for each.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
from functools import partial

from envs.sandbox.inside.confinement import STREAMS, LandlockRuleset
from envs.sandbox.inside.folder import LastingFolder, MountedFolder, uses_files
from envs.sandbox.inside.framing import (
    COMPILED,
    INPUT,
    ONE_SHOT,
    PROGRAM,
    READY,
    Channel,
    split_body,
    write_all,
)
from envs.sandbox.inside.interpreter import fill_lookup_cache, prepare_interpreter
from envs.sandbox.inside.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    SeccompFilter,
    make_forks_cheaper,
    prctl,
)
from envs.sandbox.inside.program import program_header
from envs.sandbox.inside.run_test import Fork, crash_report, run_test, run_tests
from envs.sandbox.inside.test_process import StartupStatus
from envs.sandbox.inside.zygote import (
    CLEANER,
    RUNNER,
    TEST_FUNCTIONS,
    TEST_TYPES,
    ForkClient,
    fork_from_zygote,
    serve_forks,
    socketpair,
)

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Folder = MountedFolder | LastingFolder

MAX_TASKS = 256
DEFAULTS: dict[str, Any] = {
    "uid": None,  # the user of test processes; None: the worker's own
    "gid": None,
    "pid_namespace": False,  # a fresh PID namespace per test (needs CAP_SYS_ADMIN)
    "seccomp": "",  # the BPF program, in hexadecimal, that each test process installs
    "seccomp_files": "",  # the same for a program with a folder
    "packages": "",  # the folder that holds numpy
    "environment": {},  # environment variables of programs
    "max_tasks": MAX_TASKS,  # RLIMIT_NPROC of a test process; None: not set
}
MAX_REPORT_BYTES = 1 << 16  # of a compilation


class Server:
    """The root process of the sandbox; the zygote has a copy from before any program came."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = {**DEFAULTS, **config}
        self.channel = take_channel()
        # Opened now, since /proc may be out of sight later.
        self.proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        self.counts_waiting = self._counts_waiting()
        self.startup = StartupStatus()
        # Where user namespaces are refused: rights of a program without a folder, and with one.
        self.landlock: tuple[LandlockRuleset, LandlockRuleset] | None = None
        self.folder: Folder | None = None  # for programs that use files
        self._source: bytes | None = None  # of the current program, if it uses files
        # Only in a PID namespace of our own may all other processes be ended.
        self.owns_namespace = os.getpid() == 1
        self.seccomp = tuple(
            SeccompFilter(bytes.fromhex(self.config[key])) for key in ("seccomp", "seccomp_files")
        )
        self._stdio: int | None = None
        self._oom_counter, self._oom_kills = -1, 0
        self.own_pids: set[int] = {os.getpid()}  # processes that belong to no test
        self.base_address_space = 0  # bytes, of a process before it compiles a program

    def open_stdio(self, folder: str) -> None:
        """Make the files of the standard streams in a folder, where programs have no /proc.

        Otherwise these files have no name, and programs reach them through /proc.
        """
        self._stdio = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for file in self.test_files(os.O_CREAT):
            os.fchmod(file, 0o666)
            os.close(file)

    def test_files(self, extra_flags: int = 0) -> list[int]:
        """Return empty files for stdin and stdout of one test; one test runs at a time."""
        return [self._empty_file(name, extra_flags) for name in STREAMS]

    def _unnamed_file(self) -> int:
        """Return the file that passes programs on to new processes; no other can open it."""
        if self._stdio is None:
            return os.memfd_create("program", os.MFD_CLOEXEC)
        flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
        return os.open(".", flags, 0o600, dir_fd=self._stdio)

    def _empty_file(self, name: str, extra_flags: int = 0) -> int:
        if self._stdio is None:
            return os.memfd_create(name, os.MFD_CLOEXEC)
        flags = os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC | extra_flags
        return os.open(name, flags, 0o600, dir_fd=self._stdio)

    def serve(self) -> NoReturn:
        """Run programs until the host closes the channel."""
        prepare_interpreter(self.config["packages"], self.config["environment"])
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        fill_lookup_cache(TEST_FUNCTIONS, (*TEST_TYPES, Server))
        make_forks_cheaper(self.read_proc("self/maps"))
        self._zygote = self._start_zygote()
        self._program = self._unnamed_file()
        self.channel.send(READY, {"python": sys.version.split()[0]})
        while True:
            kind, length = self.channel.read_header()
            if kind == ONE_SHOT:
                self._run_one_shot(length)
            elif kind == PROGRAM:
                self._run_program(length)
            else:
                raise RuntimeError(f"a frame of kind {kind} where a program was due")

    def _start_zygote(self) -> ForkClient:
        own_end, zygote_end = socketpair()
        pid = os.fork()
        if pid == 0:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            own_end.close()
            self.channel.close()
            self.own_pids.add(os.getpid())
            self.prefer_as_oom_victim()
            self.base_address_space = self.address_space()
            serve_forks(zygote_end, partial(fork_from_zygote, self, zygote_end))
        zygote_end.close()
        self.own_pids.add(pid)
        return ForkClient(own_end)

    def _store_program(self, length: int) -> dict[str, Any]:
        """Write a program's frame to the file for it; return its limits."""
        limits, source = split_body(self.channel.read(length))
        self._source = source if self.folder is not None and uses_files(source) else None
        limits["uses_files"] = self._source is not None
        os.ftruncate(self._program, 0)
        os.lseek(self._program, 0, os.SEEK_SET)
        write_all(self._program, program_header(limits, source))
        return limits

    def _run_one_shot(self, length: int) -> None:
        """Run a program once, on the input that follows."""
        limits = self._store_program(length)
        kind, length = self.channel.read_header()
        if kind != INPUT:
            raise RuntimeError(f"a frame of kind {kind} where an input was due")
        run_test(self, self._zygote.fork, [self._program], limits, length)

    def _run_program(self, length: int) -> None:
        """Run a program on each of the inputs that follow, until its END."""
        limits = self._store_program(length)
        own_end, runner_end = socketpair()
        pid = self._zygote.fork(RUNNER, [self._program, runner_end.fileno()])
        runner_end.close()
        self.own_pids.add(pid)
        self.channel.flush()  # compiling may take its time
        message = own_end.recv(MAX_REPORT_BYTES)  # empty if the compiler crashed
        report = split_body(message)[0] if message else None
        if report and report["outcome"] == "FINISHED":
            self.channel.send(COMPILED, report)
            run_tests(self, ForkClient(own_end).fork, limits)
        own_end.close()
        status = os.waitpid(pid, 0)[1]
        self.own_pids.discard(pid)
        report = report or crash_report(os.WTERMSIG(status))
        if report is None:  # it ended otherwise: the sandbox itself failed
            os._exit(1)
        if report["outcome"] != "FINISHED":
            self.channel.send(COMPILED, report)
            self.channel.skip_to_end()

    def fill_folder(self) -> None:
        """Give the program a folder for one test, if it uses files."""
        if self.folder is not None and self._source is not None:
            self.folder.fill(self._source)

    def clear_folder(self, fork: Fork) -> None:
        """Remove what a test has left in its folder."""
        if self.folder is not None and self._source is not None:
            self.folder.clear(lambda: os.waitpid(fork(CLEANER, []), 0))

    def watched_folder(self) -> Folder | None:
        """Return the test's folder, if its size is for the server to limit."""
        return self.folder if self._source is not None and self.landlock is not None else None

    def strays(self) -> set[int]:
        """Return the PIDs of processes that a test has left in the namespace."""
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.proc)
        try:
            return {int(name) for name in os.listdir(folder) if name.isdigit()} - self.own_pids
        finally:
            os.close(folder)

    def address_space(self) -> int:
        """Return the calling process's size in bytes."""
        return int(self.read_proc("self/statm").split()[0]) * resource.getpagesize()

    def read_proc(self, path: str, folder: int | None = None) -> bytes:
        """Read a file of /proc, or of an open folder in it."""
        folder = self.proc if folder is None else folder
        descriptor = os.open(path, os.O_RDONLY, dir_fd=folder)
        try:
            return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
        finally:
            os.close(descriptor)

    def _counts_waiting(self) -> bool:
        """Return whether the kernel counts how long a thread waits for a core."""
        with contextlib.suppress(OSError):
            return any(map(int, self.read_proc("self/schedstat").split()))
        return False

    def prefer_as_oom_victim(self) -> None:
        """Have the kernel kill the calling process or its children first if memory runs out."""
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
        """Return True if the kernel killed here for lack of memory since the last call.

        Outside of a container the counter would be that of the host or of the user's session.
        There, nobody but the kernel kills a test process with SIGKILL.
        """
        if self._oom_counter < 0:
            return True
        match = re.search(rb"oom_kill (\d+)", os.pread(self._oom_counter, 1000, 0))
        before, self._oom_kills = self._oom_kills, int(match[1]) if match else 0
        return self._oom_kills > before


def take_channel() -> Channel:
    """Move the stream from descriptors 0 and 1, which belong to programs."""
    channel = Channel(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return channel
