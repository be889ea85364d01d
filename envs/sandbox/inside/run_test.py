"""One test: its process is asked for, watched and reaped, and what became of it is sent.

Judged are CPU time (of the process and all it left), the peak resident size, the size of its
output and the exit status. Wall time is a wider net.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from envs.sandbox.inside.framing import COMPILED, END, ENDED, RESUME, report
from envs.sandbox.inside.stderr_tail import StderrTail
from envs.sandbox.inside.wait_with_limits import watch
from envs.sandbox.inside.zygote import SWEEPER, TEST

COMPILER_SIGNALS = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)

# (what to fork, the files it is given) -> the PID of this process's new child
Fork = Callable[[bytes, list[int]], int]


def run_tests(server, fork: Fork, limits: dict) -> None:
    """Run a program on the inputs of all frames up to its END, and acknowledge that.

    After a test that did not finish, inputs are dropped until the host says what is to be done.
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


def run_test(server, fork: Fork, program: list[int], limits: dict, length: int) -> str:
    """Read an input of `length` bytes, run it, send the result; return the outcome.

    `program`: the file that holds it, for a process that has to compile it first.
    """
    stdin, stdout = server.test_files()
    errors = StderrTail()
    server.channel.read_into(stdin, length)
    os.lseek(stdin, 0, os.SEEK_SET)
    server.stage.reset()
    started = time.monotonic()
    pid = fork(TEST, [*program, stdin, stdout, errors.writer])
    killed = watch(server, limits, pid, errors)
    status, cpu, peak = reap(server, fork, pid)
    ended = time.monotonic()
    errors.drain()
    refusal = refused(server, status, killed, errors.tail) if program else None
    if refusal is not None:
        outcome = refusal["outcome"]
        server.channel.send(COMPILED, refusal)
    else:
        used, since = server.stage.begun or (0.0, started)
        cpu, size = max(0.0, cpu - used), os.fstat(stdout).st_size
        outcome = "TIME_LIMIT" if cpu > limits["cpu_s"] else killed
        outcome = outcome or outcome_of(server, limits, status, peak, size, errors.tail)
        outcome = outcome if server.stage.begun else "INFRA_ERROR"
        result = {
            "outcome": outcome,
            "stderr": errors.tail,
            "exit_code": os.waitstatus_to_exitcode(status),
            "cpu_s": round(cpu, 6),
            "wall_s": round(ended - since, 6),
        }
        server.channel.send_result(result, stdout, min(size, limits["output_mb"] << 20))
    for file in (stdin, stdout):
        os.close(file)
    errors.close()
    return outcome


def refused(server, status: int, killed: str, text: str) -> dict | None:
    """Of a process that had to compile its program: the report of why it could not."""
    if server.stage.begun:
        return None
    if server.stage.refused:
        return report(server.stage.refused, text)
    return crashed(signal.SIGXCPU if killed == "TIME_LIMIT" else os.WTERMSIG(status))


def crashed(number: int) -> dict | None:
    """The report of a compiler that a signal ended, where that is the program's doing."""
    if number not in COMPILER_SIGNALS:
        return None
    outcome = "TIME_LIMIT" if number == signal.SIGXCPU else "RUNTIME_ERROR"
    return report(outcome, f"the compiler ended by signal {int(number)}")


def reap(server, fork: Fork, pid: int) -> tuple[int, float, int]:
    """Collect the test process and all it left: (status, CPU seconds, peak bytes)."""
    _, status, usage = os.wait4(pid, 0)
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
    # A PID namespace of the test's own is empty by now.
    while server.owns_namespace and not server.config["pid_namespace"]:
        strays = server.strays()
        if not strays:
            break
        os.waitpid(fork(SWEEPER, []), 0)
        for stray in strays:
            with contextlib.suppress(ChildProcessError):
                _, _, usage = os.wait4(stray, 0)
                cpu += usage.ru_utime + usage.ru_stime
                peak = max(peak, usage.ru_maxrss)
    return status, cpu, peak << 10


def outcome_of(server, limits: dict, status: int, peak: int, written: int, stderr: str) -> str:
    """Of one that ended by itself: the first that applies. `status` is wait(2)'s."""
    if written > limits["output_mb"] << 20:
        return "OUTPUT_LIMIT"
    if peak > limits["memory_mb"] << 20:
        return "MEMORY_LIMIT"
    if status == 0:
        return "FINISHED"
    last_line = stderr.rstrip().rpartition("\n")[2]
    starved = last_line.startswith("MemoryError")
    starved = starved or (status == signal.SIGKILL and server.oom_killed())
    return "MEMORY_LIMIT" if starved else "RUNTIME_ERROR"
