"""Waiting for a test process to end, and ending it at its limits."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time

from envs.sandbox.inside.framing import HOLD_S, patience_s
from envs.sandbox.inside.stderr_tail import MOST_BYTES, StderrTail

RUNNABLE_S = 0.01
COMING_S = 0.05  # how soon to look again where the program has not begun
DEAF_S = 0.002  # what a program writes on stderr meanwhile stays in its pipe


def watch(server, limits: dict, pid: int, errors: StderrTail) -> str:
    """Wait for the test process's end; kill it at a limit, and return which outcome that is.

    Wall time in which it could have run, but had no core, is not its own. Where the kernel does
    not tell of it, it is 0. One that could run at its limit goes on for a while: it has a core,
    and its CPU time will tell, or waits for one. What comes before the program itself, its
    compilation with it, has limits of its own.
    """
    handle = os.pidfd_open(pid)
    try:
        outcome = _wait(server, limits, pid, handle, errors)
        if outcome:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return outcome
    finally:
        os.close(handle)


def _wait(server, limits: dict, pid: int, handle: int, errors: StderrTail) -> str:
    channel = server.channel
    used, since = 0.0, None  # of the time when the program began
    cpu_limit, deadline = math.ceil(limits["cpu_s"]) + 1, math.inf
    own_end = given_up = math.inf
    clock = (~pid << 3) | 2  # the kernel's name for that process's CPU clock
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(errors.reader, select.POLLIN)
    poll.register(channel.source, 0)  # POLLHUP alone: the host is gone
    deaf = False  # to stderr, just read: not to be woken for each line of many
    while True:
        now = time.monotonic()
        if since is None and server.stage.begun:
            used, since = server.stage.begun
            cpu_limit = limits["cpu_s"] + used
            own_end = deadline = since + limits["wall_s"]
            given_up = since + patience_s(limits["wall_s"])
        if now >= deadline:
            waited, runnable = server.waits_for_core(handle)
            own_end = since + limits["wall_s"] + waited
            deadline = min(max(own_end, now + RUNNABLE_S) if runnable else own_end, given_up)
        left = deadline - now
        with contextlib.suppress(OSError):  # it may have ended just now
            left = min(left, cpu_limit - time.clock_gettime(clock))
        pause = min(left, DEAF_S if deaf else HOLD_S if channel.held else left)
        pause = pause if since is not None else min(pause, COMING_S)
        # Even where none is left: this process may itself have had no core, and be late.
        events = dict(poll.poll(pause * 1000 + 1 if pause > 0 else 0))
        if channel.source in events:
            os._exit(0)
        if handle in events:
            return ""
        if left <= 0:
            return "STARVED" if given_up <= now < own_end else "TIME_LIMIT"
        complained = errors.reader in events
        if complained:
            errors.drain()
            if errors.size > MOST_BYTES:
                return "OUTPUT_LIMIT"
        if deaf != complained:
            deaf = complained
            poll.modify(errors.reader, 0 if deaf else select.POLLIN)
        channel.flush()
