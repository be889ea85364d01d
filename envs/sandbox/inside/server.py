"""The fork server: holds the channel to the host, and runs each test within its limits.

It reads programs, inputs and outputs, and is never forked. Test processes are forked from the
zygote, which has seen none of these. A one-shot test is one process that compiles a program and
becomes it. For further tests, a runner compiles the program once and is forked for each.

Judged are CPU time (of the process and all it left), the peak resident size, the size of its
output and the exit status. Wall time is a wider net.

The configuration is a JSON object on the command line:
- `form`: container, namespaces, landlock or none;
- `confinement`: see `Confinement`; `environment`: environment variables of programs; `packages`:
  the folder that holds numpy;
- `cage` (container): the folder in the container that becomes the root;
- `binds` (other forms): pairs (path outside, path inside) of files for the Python runtime;
- `hidden` (namespaces): folders among them that are covered by empty ones.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import signal
import sys
import time

from envs.sandbox.inside.confinement import (
    FOLDER,
    KEPT_CAPABILITIES,
    STDIO,
    STREAMS,
    Confinement,
    LandlockRuleset,
    LastingFolder,
    MountedFolder,
    change_root,
    enter_namespaces,
    make_folder,
    remove_folder,
    test_identity,
    uses_files,
)
from envs.sandbox.inside.framing import (
    COMPILED,
    END,
    ENDED,
    HOLD_S,
    INPUT,
    ONE_SHOT,
    PROGRAM,
    READY,
    RESUME,
    STDERR_TAIL,
    Channel,
    report,
    split_body,
    write_all,
)
from envs.sandbox.inside.interpreter import prepare_interpreter
from envs.sandbox.inside.kernel import (
    LOOK_S,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    Proc,
    WallClock,
    check,
    libc,
    prctl,
    set_capabilities,
)
from envs.sandbox.inside.program import (
    CLEANER,
    RUNNER,
    SWEEPER,
    TEST,
    ForkClient,
    StartupStatus,
    Zygote,
    program_header,
    socketpair,
)

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from typing import Any, NoReturn

MAX_REPORT_BYTES = 1 << 16  # of a compilation
COMPILER_SIGNALS = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
STARTUP_POLL_S = 0.05  # how soon to look again while the program has not begun
FOLDER_POLL_S = 0.02  # how soon to look again into a folder whose size no mount limits
STDERR_PAUSE_S = 0.002  # after a read of stderr; what comes meanwhile stays in its pipe
STDERR_LIMIT_BYTES = 16 << 20  # beyond it a program does nothing but complain
_TAIL_BYTES = 4 * STDERR_TAIL  # UTF-8 has at most 4 for a character
_PIPE_BYTES, _READS_AT_A_TIME = 1 << 16, 16


class StderrTail:
    """Standard error of one test: nobody judges it, so it is read as it comes and its end is kept.

    It is a pipe, since a file would count towards the limit on output.
    """

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.fchmod(self.reader, 0o666)  # so that another user may open /proc/self/fd/2
        self.size, self._tail = 0, b""  # bytes received, and the last of them

    def drain(self) -> None:
        """Read what is there, but return even if a program writes without a pause."""
        for _ in range(_READS_AT_A_TIME):
            try:
                part = os.read(self.reader, _PIPE_BYTES)
            except BlockingIOError:
                return
            self.size += len(part)
            self._tail = (self._tail + part)[-_TAIL_BYTES:]

    @property
    def tail(self) -> str:
        """The last STDERR_TAIL characters."""
        return self._tail.decode("utf-8", "replace")[-STDERR_TAIL:]


class Server:
    """The root process of the sandbox; the zygote has a copy from before any program came."""

    def __init__(self, config: dict[str, Any], **settings: Any) -> None:
        self.config = config
        self.confinement = Confinement(config["confinement"] | settings)
        # The stream leaves descriptors 0 and 1, which belong to programs.
        self.channel = Channel(os.dup(0), os.dup(1))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(null, descriptor)
        os.close(null)
        self.proc = Proc()  # now, since it may be out of sight later
        self.startup = StartupStatus()
        self._source: bytes | None = None  # of the current program, if it uses files
        self._stdio: int | None = None
        self._oom_counter, self._oom_kills = -1, 0

    def open_stdio(self, folder: str) -> None:
        """Make the files of the standard streams in a folder, where programs have no /proc.

        Otherwise these files have no name, and programs reach them through /proc.
        """
        self._stdio = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for name in STREAMS:
            file = self._stream_file(name, os.O_CREAT)
            os.fchmod(file, 0o666)
            os.close(file)

    def _stream_file(self, name: str, extra_flags: int = 0) -> int:
        """Return an empty file for a stream of one test; one test runs at a time."""
        if self._stdio is None:
            return os.memfd_create(name, os.MFD_CLOEXEC)
        flags = os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC | extra_flags
        return os.open(name, flags, 0o600, dir_fd=self._stdio)

    def serve(self) -> NoReturn:
        """Run programs until the host closes the channel."""
        prepare_interpreter(self.config["packages"], self.config["environment"])
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if hasattr(libc, "malloc_trim"):  # glibc: freed memory would cost each fork
            libc.malloc_trim(0)
        own_end, zygote_end = socketpair()
        pid = os.fork()
        if pid == 0:
            own_end.close()
            self.channel.close()
            Zygote(self.confinement, self.startup, self.proc).serve(zygote_end)
        zygote_end.close()
        self.confinement.own_pids.add(pid)
        self._zygote = ForkClient(own_end)
        # The file that passes programs on to new processes; no other can open it.
        if self._stdio is None:
            self._program = os.memfd_create("program", os.MFD_CLOEXEC)
        else:
            flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
            self._program = os.open(".", flags, 0o600, dir_fd=self._stdio)
        self.channel.send(READY, {"python": sys.version.split()[0]})
        while True:
            kind, length = self.channel.read_header()
            if kind == ONE_SHOT:
                limits = self._store_program(length)
                kind, length = self.channel.read_header()
                if kind != INPUT:
                    raise RuntimeError(f"a frame of kind {kind} where an input was due")
                self._run_test(self._zygote, [self._program], limits, length)
            elif kind == PROGRAM:
                self._run_program(self._store_program(length))
            else:
                raise RuntimeError(f"a frame of kind {kind} where a program was due")

    # ---- programs ----

    def _store_program(self, length: int) -> dict[str, Any]:
        """Write a program's frame to the file for it; return its limits."""
        limits, source = split_body(self.channel.read(length))
        with_folder = self.confinement.folder is not None and uses_files(source)
        self._source = source if with_folder else None
        limits["uses_files"] = with_folder
        os.ftruncate(self._program, 0)
        os.lseek(self._program, 0, os.SEEK_SET)
        write_all(self._program, program_header(limits, source))
        return limits

    def _run_program(self, limits: dict[str, Any]) -> None:
        """Run a program on each of the inputs that follow, until its END, and acknowledge that."""
        own_end, runner_end = socketpair()
        pid = self._zygote.fork(RUNNER, [self._program, runner_end.fileno()])
        runner_end.close()
        self.confinement.own_pids.add(pid)
        self.channel.flush()  # compiling may take its time
        message = own_end.recv(MAX_REPORT_BYTES)  # empty if the compiler crashed
        compiled = split_body(message)[0] if message else None
        if compiled and compiled["outcome"] == "FINISHED":
            cpu_s = time.clock_gettime((~pid << 3) | 2)  # of the runner
            self.channel.send(COMPILED, compiled | {"cpu_s": round(cpu_s, 6)})
            self._run_tests(ForkClient(own_end), limits)
        own_end.close()
        _, status, usage = os.wait4(pid, 0)
        self.confinement.own_pids.discard(pid)
        cpu_s = usage.ru_utime + usage.ru_stime
        compiled = compiled or crash_report(os.WTERMSIG(status))
        if compiled is None:  # it ended otherwise: the sandbox itself failed
            os._exit(1)
        if compiled["outcome"] != "FINISHED":
            self.channel.send(COMPILED, compiled | {"cpu_s": round(cpu_s, 6)})
            self.channel.skip_to_end()

    def _run_tests(self, runner: ForkClient, limits: dict[str, Any]) -> None:
        """Run tests until END; after one that did not finish, drop inputs until RESUME."""
        dropping = False
        while True:
            kind, length = self.channel.read_header()
            if kind == END:
                self.channel.send(ENDED, {})
                return
            if kind == RESUME:
                dropping = False
            elif dropping:
                self.channel.skip(length)
            else:
                dropping = self._run_test(runner, [], limits, length) != "FINISHED"
                if dropping:
                    self.channel.flush()

    # ---- one test ----

    def _run_test(
        self, template: ForkClient, program: list[int], limits: dict[str, Any], length: int
    ) -> str:
        """Read an input of `length` bytes, run it, send the result; return the outcome.

        The test is forked from `template`. `program` holds the program's file, for a process that
        has to compile it first.
        """
        stdin, stdout = map(self._stream_file, STREAMS)
        stderr = StderrTail()
        for piece in self.channel.pieces(length):
            write_all(stdin, piece)
        os.lseek(stdin, 0, os.SEEK_SET)
        folder = self.confinement.folder if self._source is not None else None
        if folder is not None and self._source is not None:
            folder.fill(self._source)
        self.startup.reset()
        started = time.monotonic()
        pid = template.fork(TEST, [*program, stdin, stdout, stderr.writer])
        clock = WallClock(self.proc, os.pidfd_open(pid), limits["wall_s"], started)
        limit_outcome = self._wait(limits, pid, clock, stderr)
        if clock.begun is None and self.startup.begun:  # it began and ended unseen
            clock.begin(self.startup.begun[1])
        clock.stop()
        if limit_outcome:
            signal.pidfd_send_signal(clock.process, signal.SIGKILL)
        os.close(clock.process)
        status, cpu_s, peak_bytes = self._reap(template, pid)
        ended = time.monotonic()
        if self._watched is not None and not limit_outcome:
            try:
                left_too_much = self._watched.is_overfull(None)
            except OSError:
                left_too_much = True
            limit_outcome = "OUTPUT_LIMIT" if left_too_much else ""
        if folder is not None:
            folder.clear(lambda: os.waitpid(template.fork(CLEANER, []), 0))
        stderr.drain()
        refusal = None  # why a process could not compile its program
        if program and self.startup.refused:
            refusal = report(self.startup.refused, stderr.tail)
        elif program and not self.startup.begun:
            timed_out = limit_outcome == "TIME_LIMIT"
            refusal = crash_report(signal.SIGXCPU if timed_out else os.WTERMSIG(status))
        if refusal is not None:
            outcome = refusal["outcome"]
            self.channel.send(COMPILED, refusal | {"cpu_s": round(cpu_s, 6)})
        else:
            cpu_before, begun = self.startup.begun or (0.0, started)
            cpu_s, size = max(0.0, cpu_s - cpu_before), os.fstat(stdout).st_size
            outcome = "TIME_LIMIT" if cpu_s > limits["cpu_s"] else limit_outcome
            outcome = outcome or self._outcome(limits, status, peak_bytes, size, stderr.tail)
            outcome = outcome if self.startup.begun else "INFRA_ERROR"
            own_end = status != signal.SIGKILL or peak_bytes > limits["memory_mb"] << 20
            killed = not own_end and outcome in ("RUNTIME_ERROR", "MEMORY_LIMIT")
            result = {
                "outcome": outcome,
                "stderr": stderr.tail,
                "exit_code": os.waitstatus_to_exitcode(status),
                "cpu_s": round(cpu_s, 6),
                "wall_s": round(ended - begun, 6),
                **clock.report(cpu_s, killed=bool(limit_outcome)),
                **({"killed": True} if killed else {}),
                **({"compile_s": round(cpu_before, 6)} if program else {}),
            }
            self.channel.send_result(result, stdout, min(size, limits["output_mb"] << 20))
        for file in (stdin, stdout, stderr.reader, stderr.writer):
            os.close(file)
        return outcome

    def _wait(self, limits: dict[str, Any], pid: int, clock: WallClock, stderr: StderrTail) -> str:
        """Wait for the test process to end, or to reach a limit; return that limit's outcome.

        Return "" if it ended by itself. What comes before the program itself, its compilation
        included, has limits of its own.
        """
        channel, watched = self.channel, self._watched
        poll = select.poll()
        poll.register(clock.process, select.POLLIN)
        poll.register(stderr.reader, select.POLLIN)
        poll.register(channel.source, 0)  # POLLHUP alone: the host is gone
        cpu_limit = math.ceil(limits["cpu_s"]) + 1
        ignoring_stderr = False  # just read: do not wake up for each of many lines
        while True:
            clock.wake()
            if clock.begun is None and self.startup.begun:
                cpu_before, begun = self.startup.begun
                cpu_limit = limits["cpu_s"] + cpu_before
                clock.begin(begun)
            left = clock.left_s()
            with contextlib.suppress(OSError):  # the process may have ended just now
                # the kernel's number for the CPU clock of a process that was not reaped
                left = min(left, cpu_limit - time.clock_gettime((~pid << 3) | 2))
            hold = HOLD_S if channel.held else left
            pause = min(left, STDERR_PAUSE_S if ignoring_stderr else hold)
            pause = max(0.0, min(pause, STARTUP_POLL_S if clock.begun is None else LOOK_S))
            pause = pause if watched is None else min(pause, FOLDER_POLL_S)
            # Even where none is left: this process may itself have had no core, and be late.
            events = dict(poll.poll(pause * 1000 + 1 if pause > 0 else 0))
            clock.wake(pause)
            if channel.source in events:
                os._exit(0)
            if clock.process in events:
                return ""
            if left <= 0:
                return "STARVED" if clock.starved() else "TIME_LIMIT"
            wrote_stderr = stderr.reader in events
            if wrote_stderr:
                stderr.drain()
            overfull = watched is not None and self._is_overfull(watched, pid, clock)
            if overfull or stderr.size > STDERR_LIMIT_BYTES:
                return "OUTPUT_LIMIT"
            if ignoring_stderr != wrote_stderr:
                ignoring_stderr = wrote_stderr
                poll.modify(stderr.reader, 0 if ignoring_stderr else select.POLLIN)
            channel.flush()

    @property
    def _watched(self) -> LastingFolder | None:
        """The folder of the current program, if the server has to limit it."""
        folder = self.confinement.folder if self._source is not None else None
        return folder if isinstance(folder, LastingFolder) and folder.is_watched else None

    def _is_overfull(self, folder: LastingFolder, pid: int, clock: WallClock) -> bool:
        """Look into a test's folder, again while it stands still if a part could not be seen.

        What cannot be seen then cannot be limited. After the test's end there is another look.
        """
        try:
            return folder.is_overfull(pid)
        except OSError:
            with clock.stopped():
                try:
                    return folder.is_overfull(pid)
                except OSError:
                    return not select.select([clock.process], [], [], 0)[0]

    def _reap(self, template: ForkClient, pid: int) -> tuple[int, float, int]:
        """Collect the test process and all it left; return (status, CPU seconds, peak bytes)."""
        _, status, usage = os.wait4(pid, 0)
        cpu_s, peak_kb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        confinement = self.confinement
        # A PID namespace of the test's own is empty by now.
        while confinement.owns_namespace and not confinement.pid_namespace:
            strays = self.proc.pids() - confinement.own_pids
            if not strays:
                break
            os.waitpid(template.fork(SWEEPER, []), 0)
            for stray in strays:
                with contextlib.suppress(ChildProcessError):
                    _, _, usage = os.wait4(stray, 0)
                    cpu_s += usage.ru_utime + usage.ru_stime
                    peak_kb = max(peak_kb, usage.ru_maxrss)
        return status, cpu_s, peak_kb << 10

    def _outcome(
        self, limits: dict[str, Any], status: int, peak_bytes: int, written: int, stderr: str
    ) -> str:
        """Return the first outcome that applies to a process that ended by itself.

        `status` is that of wait(2), `written` the size of its output in bytes.
        """
        if written > limits["output_mb"] << 20:
            return "OUTPUT_LIMIT"
        if peak_bytes > limits["memory_mb"] << 20:
            return "MEMORY_LIMIT"
        if status == 0:
            return "FINISHED"
        out_of_memory = stderr.rstrip().rpartition("\n")[2].startswith("MemoryError")
        out_of_memory = out_of_memory or (status == signal.SIGKILL and self._oom_killed())
        return "MEMORY_LIMIT" if out_of_memory else "RUNTIME_ERROR"

    # ---- out of memory ----

    def count_oom_kills(self) -> None:
        """Look at this container's counter of out-of-memory kills from now on."""
        for name in ("memory.events", "memory/memory.oom_control"):  # cgroup v2, v1
            with contextlib.suppress(OSError):
                self._oom_counter = os.open(f"/sys/fs/cgroup/{name}", os.O_RDONLY)
                return

    def _oom_killed(self) -> bool:
        """Return True if the kernel killed here for lack of memory since the last call.

        Outside of a container the counter would be that of the host or of the user's session. In
        one it also counts kills for the host's lack of memory, which are not the program's fault.
        """
        if self._oom_counter < 0:
            return False
        match = re.search(rb"oom_kill (\d+)", os.pread(self._oom_counter, 1000, 0))
        before, self._oom_kills = self._oom_kills, int(match[1]) if match else 0
        return self._oom_kills > before


def crash_report(number: int) -> dict[str, Any] | None:
    """Return the report of a compiler that a signal ended, if the program is to blame."""
    if number not in COMPILER_SIGNALS:
        return None
    outcome = "TIME_LIMIT" if number == signal.SIGXCPU else "RUNTIME_ERROR"
    return report(outcome, f"the compiler ended by signal {int(number)}")


def main() -> NoReturn:
    """Serve in the form that the host requests, until the host hangs up."""
    config = json.loads(sys.argv[1])
    forms = {
        "container": serve_in_container,
        "namespaces": serve_in_namespaces,
        "landlock": serve_under_landlock,
        "none": serve_filtered,
    }
    forms[config["form"]](config)


def serve_in_container(config: dict[str, Any]) -> NoReturn:
    """Serve as PID 1 and root of a container that is confined already.

    Its root becomes a folder without what engines put into containers: /proc, /sys, terminals.
    """
    server = Server(config)
    server.count_oom_kills()
    os.chroot(config["cage"])
    os.chdir("/")
    server.open_stdio(STDIO)
    server.confinement.folder = LastingFolder(FOLDER, is_watched=False)
    server.serve()


def serve_in_namespaces(config: dict[str, Any]) -> NoReturn:
    """Build the sandbox, with the server as its PID 1 and this process as its guard outside."""
    user = enter_namespaces()
    fork_guarded()
    os.umask(0o022)
    check(libc.sethostname(b"sandbox", 7), "sethostname")
    server = Server(config, user=user, pid_namespace=True)
    change_root(config["binds"], config["hidden"])
    server.open_stdio(STDIO)
    server.confinement.folder = MountedFolder()
    set_capabilities(KEPT_CAPABILITIES)
    server.serve()


def serve_under_landlock(config: dict[str, Any]) -> NoReturn:
    """Serve in the weaker form: Landlock, the filter and limits hold each test process."""
    readable = [outside for outside, _ in config["binds"]]
    identity = test_identity(readable)
    folder = make_folder(identity.get("user"))
    fork_guarded(folder)
    server = Server(config, **identity)
    server.confinement.landlock = LandlockRuleset(readable), LandlockRuleset(readable, folder)
    server.confinement.folder = LastingFolder(folder, is_watched=True) if folder else None
    server.serve()


def serve_filtered(config: dict[str, Any]) -> NoReturn:
    """Serve in the weakest form: the filter and limits only, so that files can be read."""
    identity = test_identity([outside for outside, _ in config["binds"]])
    if os.getuid() == 0 and "user" not in identity:
        raise PermissionError("as root it needs a Python runtime that every user may read")
    fork_guarded()
    Server(config, **identity).serve()


def fork_guarded(folder: str | None = None) -> None:
    """Return in a child; this process stays behind as its guard.

    The guard waits until the child ends or the host hangs up, and leaves nothing, nor the `folder`.
    If the guard is killed itself, the child dies with it.
    """
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    poll = select.poll()
    poll.register(os.pidfd_open(pid), select.POLLIN)
    poll.register(0, 0)  # POLLHUP alone: the host's messages are not for this process
    poll.poll()
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if folder is not None:
        remove_folder(folder)
    os._exit(0 if status == 0 else 1)
