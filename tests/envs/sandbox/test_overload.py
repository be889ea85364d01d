"""Programs on a core shared with busy loops: time spent waiting for it does not count."""

import os
import subprocess
import sys

import pytest

from envs.sandbox.base import Job, Limits, Outcome
from envs.sandbox.inside.framing import patience_s
from tests.envs.programs import tool
from tests.envs.sandboxes import open_one

LOOPS = 6
WALL_S = 0.7
# 0.2 s of CPU time, which is some 1.4 s of wall time beside six loops.
BURN = "import time\nwhile time.process_time() < 0.2: pass\nprint('done')"


@pytest.fixture(scope="module")
def one_busy_core():
    if not os.path.exists("/proc/self/schedstat"):
        pytest.skip("this kernel does not tell how long a process waited for a core")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    # Each in a session of its own, since the kernel may share a core out among sessions.
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(LOOPS)
    ]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()
    os.sched_setaffinity(0, before)


# Slow: a second form of the sandbox holds a core for ten more seconds.
FORMS = ["namespaces", pytest.param("landlock", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=FORMS)
def sandbox(request, one_busy_core):
    with open_one(request.param) as sandbox:
        yield sandbox


# How waiting is found differs between the forms; what follows from it does not.
one_form = pytest.mark.parametrize("sandbox", ["namespaces"], indirect=True)


def run(sandbox, program, **limits):
    [(_, [execution])] = sandbox.run([Job(program, ("",), Limits(**limits))], lambda *_: True)
    return execution


def test_a_right_program_that_waits_for_a_core_is_given_the_time(sandbox):
    execution = run(sandbox, BURN, cpu_s=1.0, wall_s=WALL_S)
    assert (execution.outcome, execution.stdout) == (Outcome.FINISHED, b"done\n")
    assert execution.wall_s > WALL_S, "the core was not busy enough for this test to say anything"


def test_a_program_in_a_thread_too(sandbox):
    program = f"import threading\nthreading.Thread(target=exec, args=({BURN!r}, {{}})).start()"
    # The longest wait of one thread counts: what the main one waits besides needs room.
    execution = run(sandbox, program, cpu_s=1.0, wall_s=1.0)
    assert (execution.outcome, execution.stdout) == (Outcome.FINISHED, b"done\n")


def test_a_sleeping_program_is_at_its_limit_on_a_busy_machine_too(sandbox):
    execution = run(sandbox, "import time\ntime.sleep(60)", cpu_s=1.0, wall_s=WALL_S)
    assert execution.outcome is Outcome.TIME_LIMIT
    assert execution.wall_s < patience_s(WALL_S)


def test_a_program_that_gets_no_core_is_starved_not_slow(sandbox):
    execution = run(sandbox, BURN.replace("0.2", "9.0"), cpu_s=10.0, wall_s=1.2)
    assert execution.outcome is Outcome.STARVED


# All threads hash at the same time, for some 2 ms without the interpreter's lock, and then sleep.
BURSTS = tool("bursts.py")


@pytest.mark.slow  # holds a core for five seconds
@one_form
def test_threads_that_keep_each_other_waiting_gain_no_time_without_end(sandbox):
    limits = {"cpu_s": 5.0, "wall_s": WALL_S}
    execution = run(sandbox, BURSTS, **limits)
    assert execution.outcome in (Outcome.TIME_LIMIT, Outcome.STARVED)
    assert execution.wall_s < patience_s(WALL_S) + 2.0
