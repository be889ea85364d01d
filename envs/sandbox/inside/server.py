"""The fork server: holds the channel to the host.

It reads programs, inputs and outputs, and is never forked: what test processes are forked from has
seen none of them (`zygote.py`). A shot is the first test of a program: one process that compiles
it and is it. For further tests a runner (`runner.py`) compiles it once and is forked for each.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
from functools import partial

from envs.sandbox.inside.confine import STREAMS
from envs.sandbox.inside.framing import (
    COMPILED,
    INPUT,
    PROGRAM,
    READY,
    SHOT,
    Channel,
    split_body,
    write_all,
)
from envs.sandbox.inside.interpreter import prepare_interpreter
from envs.sandbox.inside.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    SeccompFilter,
    ease_forks,
    prctl,
)
from envs.sandbox.inside.program_header import briefing
from envs.sandbox.inside.run_test import crashed, run_test, run_tests
from envs.sandbox.inside.runner import start_process
from envs.sandbox.inside.startup_status import Stage
from envs.sandbox.inside.zygote import RUNNER, Forker, serve_forks, socketpair

DEFAULTS = {
    "uid": None,  # the user of test processes; None: the worker's own
    "gid": None,
    "pid_namespace": False,  # a fresh PID namespace per test (needs CAP_SYS_ADMIN)
    "seccomp": "",  # the BPF program, in hexadecimal, that each test process installs
    "packages": "",  # the folder that holds numpy
    "environment": {},  # environment variables of programs
    "max_tasks": 64,  # RLIMIT_NPROC of a test process; None: not set
}

MOST_REPORT_BYTES = 1 << 16  # of what compiling a program came to


class Server:
    """The root process of the cage; the zygote has a copy, of before any program came."""

    def __init__(self, config: dict) -> None:
        self.config = {**DEFAULTS, **config}
        self.channel = take_channel()
        # Opened now, since /proc may be out of sight later.
        self.proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        self.stage = Stage()
        self.ruleset = None  # of Landlock, where namespaces are refused
        # Only in a PID namespace of our own are all other processes ours to end.
        self.owns_namespace = os.getpid() == 1
        self.filter = SeccompFilter(bytes.fromhex(self.config["seccomp"]))
        self._stdio: int | None = None
        self._oom_counter, self._oom_kills = -1, 0
        self.ours: set[int] = {os.getpid()}  # processes that are no test's
        self.space = 0  # bytes of address space of what programs are compiled in, before that

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
        return [self._empty(name, further) for name in STREAMS]

    def _unnamed(self) -> int:
        """The file for programs on their way to who compiles them; nobody else can open it."""
        if self._stdio is None:
            return os.memfd_create("program", os.MFD_CLOEXEC)
        flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
        return os.open(".", flags, 0o600, dir_fd=self._stdio)

    def _empty(self, name: str, further: int = 0) -> int:
        if self._stdio is None:
            return os.memfd_create(name, os.MFD_CLOEXEC)
        flags = os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC | further
        return os.open(name, flags, 0o600, dir_fd=self._stdio)

    def serve(self) -> None:
        """Run programs until the host closes the channel. Never returns."""
        prepare_interpreter(self.config["packages"], self.config["environment"])
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        ease_forks(self._look_up("self/maps"))
        self._zygote = self._start_zygote()
        self._program = self._unnamed()
        self.channel.send(READY, {"python": sys.version.split()[0]})
        while True:
            kind, length = self.channel.read_header()
            if kind == SHOT:
                self._shoot(length)
            elif kind == PROGRAM:
                self._serve_program(length)
            else:
                raise RuntimeError(f"a frame of kind {kind} where a program was due")

    def _start_zygote(self) -> Forker:
        ours, theirs = socketpair()
        pid = os.fork()
        if pid == 0:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            ours.close()
            self.channel.close()
            self.ours.add(os.getpid())
            self.suffer_first()
            self.space = self.address_space()
            serve_forks(theirs, partial(start_process, self, theirs))
        theirs.close()
        self.ours.add(pid)
        return Forker(ours)

    def _take_program(self, length: int) -> dict:
        """Have a program's frame in the file for it; return its limits."""
        limits, source = split_body(self.channel.read(length))
        os.ftruncate(self._program, 0)
        os.lseek(self._program, 0, os.SEEK_SET)
        write_all(self._program, briefing(limits, source))
        return limits

    def _shoot(self, length: int) -> None:
        """Run a program once, on the input that follows."""
        limits = self._take_program(length)
        kind, length = self.channel.read_header()
        if kind != INPUT:
            raise RuntimeError(f"a frame of kind {kind} where an input was due")
        run_test(self, self._zygote.fork, [self._program], limits, length)

    def _serve_program(self, length: int) -> None:
        """Run a program on each of the inputs that follow, until its END."""
        limits = self._take_program(length)
        end, theirs = socketpair()
        pid = self._zygote.fork(RUNNER, [self._program, theirs.fileno()])
        theirs.close()
        self.ours.add(pid)
        self.channel.flush()  # compiling may take its time
        found = end.recv(MOST_REPORT_BYTES)  # nothing where the compiler crashed
        told = split_body(found)[0] if found else None
        if told and told["outcome"] == "FINISHED":
            self.channel.send(COMPILED, told)
            run_tests(self, Forker(end).fork, limits)
        end.close()
        status = os.waitpid(pid, 0)[1]
        self.ours.discard(pid)
        told = told or crashed(os.WTERMSIG(status))
        if told is None:  # it ended otherwise: the cage itself failed
            os._exit(1)
        if told["outcome"] != "FINISHED":
            self.channel.send(COMPILED, told)
            self.channel.skip_to_end()

    def strays(self) -> set[int]:
        """Processes that a test has left in the namespace."""
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.proc)
        try:
            return {int(name) for name in os.listdir(folder) if name.isdigit()} - self.ours
        finally:
            os.close(folder)

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
        """A file of /proc."""
        descriptor = os.open(path, os.O_RDONLY, dir_fd=self.proc)
        try:
            return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
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
