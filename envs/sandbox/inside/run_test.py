"""One test: request its process, wait for it within limits, reap it, and send the result.

Judged are CPU time (of the process and all it left), the peak resident size, the size of its
output and the exit status. Wall time is a wider net.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Callable

from envs.sandbox.inside.framing import (
    COMPILED,
    END,
    ENDED,
    HOLD_S,
    RESUME,
    STDERR_TAIL,
    report,
)
from envs.sandbox.inside.wall_time import LOOK_S, WallClock
from envs.sandbox.inside.zygote import SWEEPER, TEST

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from typing import Any

    from envs.sandbox.inside.server import Server

COMPILER_SIGNALS = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
STARTUP_POLL_S = 0.05  # how soon to look again while the program has not begun
FOLDER_POLL_S = 0.02  # how soon to look again into a folder whose size no mount limits
STDERR_PAUSE_S = 0.002  # after a read of stderr; what comes meanwhile stays in its pipe
STDERR_LIMIT_BYTES = 16 << 20  # beyond it a program does nothing but complain
_TAIL_BYTES = 4 * STDERR_TAIL  # UTF-8 has at most 4 for a character
_PIPE_BYTES, _READS_AT_A_TIME = 1 << 16, 16

# (kind of process, files for it) -> the PID of this process's new child
Fork = Callable[[bytes, list[int]], int]


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

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self.writer)


def run_tests(server: Server, fork: Fork, limits: dict[str, Any]) -> None:
    """Run a program on the inputs of all frames up to its END, and acknowledge it.

    After a test that did not finish, inputs are dropped until the host sends RESUME.
    """
    dropping = False
    while True:
        kind, length = server.channel.read_header()
        if kind == END:
            server.channel.send(ENDED, {})
            return
        if kind == RESUME:
            dropping = False
        elif dropping:
            server.channel.skip(length)
        else:
            dropping = run_test(server, fork, [], limits, length) != "FINISHED"
            if dropping:
                server.channel.flush()


def run_test(
    server: Server, fork: Fork, program: list[int], limits: dict[str, Any], length: int
) -> str:
    """Read an input of `length` bytes, run it, send the result; return the outcome.

    `program` holds the program's file, for a process that has to compile it first.
    """
    stdin, stdout = server.test_files()
    stderr = StderrTail()
    server.channel.read_into(stdin, length)
    os.lseek(stdin, 0, os.SEEK_SET)
    server.fill_folder()
    server.startup.reset()
    started = time.monotonic()
    pid = fork(TEST, [*program, stdin, stdout, stderr.writer])
    limit_outcome, clock = wait_within_limits(server, limits, pid, started, stderr)
    status, cpu_s, peak_bytes = reap(server, fork, pid)
    ended = time.monotonic()
    server.clear_folder(fork)
    stderr.drain()
    refusal = refusal_report(server, status, limit_outcome, stderr.tail) if program else None
    if refusal is not None:
        outcome = refusal["outcome"]
        server.channel.send(COMPILED, refusal)
    else:
        cpu_before, begun = server.startup.begun or (0.0, started)
        cpu_s, size = max(0.0, cpu_s - cpu_before), os.fstat(stdout).st_size
        outcome = "TIME_LIMIT" if cpu_s > limits["cpu_s"] else limit_outcome
        outcome = outcome or final_outcome(server, limits, status, peak_bytes, size, stderr.tail)
        outcome = outcome if server.startup.begun else "INFRA_ERROR"
        result = {
            "outcome": outcome,
            "stderr": stderr.tail,
            "exit_code": os.waitstatus_to_exitcode(status),
            "cpu_s": round(cpu_s, 6),
            "wall_s": round(ended - begun, 6),
            **clock.report(cpu_s, killed=bool(limit_outcome)),
        }
        server.channel.send_result(result, stdout, min(size, limits["output_mb"] << 20))
    for file in (stdin, stdout):
        os.close(file)
    stderr.close()
    return outcome


def wait_within_limits(
    server: Server, limits: dict[str, Any], pid: int, started: float, stderr: StderrTail
) -> tuple[str, WallClock]:
    """Wait for the test process to end, and kill it at a limit.

    Return that limit's outcome, or "" if it ended by itself, and the clock of its wall time. What
    comes before the program itself, its compilation included, has limits of its own.
    """
    clock = WallClock(server, os.pidfd_open(pid), limits["wall_s"], started)
    try:
        outcome = _wait(server, limits, pid, clock, stderr)
        if clock.begun is None and server.startup.begun:  # it began and ended unseen
            clock.begin(server.startup.begun[1])
        clock.stop()
        if outcome:
            signal.pidfd_send_signal(clock.process, signal.SIGKILL)
        return outcome, clock
    finally:
        os.close(clock.process)


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process that was not reaped."""
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's number for its CPU clock


def _poll_for(server: Server, process: int, stderr: StderrTail) -> select.poll:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(stderr.reader, select.POLLIN)
    poll.register(server.channel.source, 0)  # POLLHUP alone: the host is gone
    return poll


def _wait(
    server: Server, limits: dict[str, Any], pid: int, clock: WallClock, stderr: StderrTail
) -> str:
    channel, poll = server.channel, _poll_for(server, clock.process, stderr)
    cpu_limit = math.ceil(limits["cpu_s"]) + 1
    folder = server.watched_folder()
    ignoring_stderr = False  # just read: do not wake up for each of many lines
    while True:
        clock.wake()
        if clock.begun is None and server.startup.begun:
            cpu_before, begun = server.startup.begun
            cpu_limit = limits["cpu_s"] + cpu_before
            clock.begin(begun)
        left = clock.left_s()
        with contextlib.suppress(OSError):  # the process may have ended just now
            left = min(left, cpu_limit - _cpu_s(pid))
        hold = HOLD_S if channel.held_bytes else left
        pause = min(left, STDERR_PAUSE_S if ignoring_stderr else hold)
        pause = max(0.0, min(pause, STARTUP_POLL_S if clock.begun is None else LOOK_S))
        pause = pause if folder is None else min(pause, FOLDER_POLL_S)
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
        overfull = folder is not None and folder.is_overfull(pid)
        if overfull or stderr.size > STDERR_LIMIT_BYTES:
            return "OUTPUT_LIMIT"
        if ignoring_stderr != wrote_stderr:
            ignoring_stderr = wrote_stderr
            poll.modify(stderr.reader, 0 if ignoring_stderr else select.POLLIN)
        channel.flush()


def refusal_report(
    server: Server, status: int, limit_outcome: str, stderr: str
) -> dict[str, Any] | None:
    """Return the report of why a process could not compile its program; None if it could."""
    if server.startup.begun:
        return None
    if server.startup.refused:
        return report(server.startup.refused, stderr)
    return crash_report(signal.SIGXCPU if limit_outcome == "TIME_LIMIT" else os.WTERMSIG(status))


def crash_report(number: int) -> dict[str, Any] | None:
    """Return the report of a compiler that a signal ended, if the program is to blame."""
    if number not in COMPILER_SIGNALS:
        return None
    outcome = "TIME_LIMIT" if number == signal.SIGXCPU else "RUNTIME_ERROR"
    return report(outcome, f"the compiler ended by signal {int(number)}")


def reap(server: Server, fork: Fork, pid: int) -> tuple[int, float, int]:
    """Collect the test process and all it left; return (status, CPU seconds, peak bytes)."""
    _, status, usage = os.wait4(pid, 0)
    cpu_s, peak_kb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
    # A PID namespace of the test's own is empty by now.
    while server.owns_namespace and not server.config["pid_namespace"]:
        strays = server.strays()
        if not strays:
            break
        os.waitpid(fork(SWEEPER, []), 0)
        for stray in strays:
            with contextlib.suppress(ChildProcessError):
                _, _, usage = os.wait4(stray, 0)
                cpu_s += usage.ru_utime + usage.ru_stime
                peak_kb = max(peak_kb, usage.ru_maxrss)
    return status, cpu_s, peak_kb << 10


def final_outcome(
    server: Server, limits: dict[str, Any], status: int, peak_bytes: int, written: int, stderr: str
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
    last_line = stderr.rstrip().rpartition("\n")[2]
    out_of_memory = last_line.startswith("MemoryError")
    out_of_memory = out_of_memory or (status == signal.SIGKILL and server.oom_killed())
    return "MEMORY_LIMIT" if out_of_memory else "RUNTIME_ERROR"
