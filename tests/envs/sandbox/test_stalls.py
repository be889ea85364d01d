"""Processes of a sandbox that are stopped for longer than a wall limit, or killed: no verdict
changes."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.judge.verdict_cache import VerdictCache
from envs.problem import Problem, Test, Verdict
from envs.sandbox.base import Job, Limits, Outcome, Sandbox
from envs.sandbox.docker import connect
from tests.envs.programs import tool
from tests.envs.sandbox.host import child_pids, eventually
from tests.envs.sandboxes import EVERY_SANDBOX, SANDBOXES, open_one

WALL_S = 0.75
STOP_S = 1.5
# A second thread shows from outside that the program has begun.
NAP = (
    "import threading, time\nthreading.Thread(target=time.sleep, args=({0},)).start()\n"
    "time.sleep({0})\nprint('done')"
)
RIGHT, TOO_LONG = NAP.format(0.3), NAP.format(1.25)


@pytest.fixture
def sandbox(request) -> Iterator[Sandbox]:
    """One worker."""
    with open_one(request.param) as opened:
        list(opened.run([Job("pass", ("",))], lambda *_: True))
        yield opened


def on_sandboxes(*targets: str) -> list:
    """Parameters (sandbox, target): each target on one sandbox in turn, slow on the others."""
    turns = [(number % 3, target) for number, target in enumerate(targets)]
    return [
        pytest.param(
            name,
            target,
            marks=[pytest.mark.docker] * (name == "docker")
            # It waits, and what the server sees is the same everywhere.
            + [pytest.mark.slow] * (number != turn),
        )
        for turn, target in turns
        for number, name in enumerate(SANDBOXES)
    ]


def server_of(sandbox: Sandbox) -> int:
    """The PID of the one worker's server, outside."""
    [worker] = sandbox._connections
    if sandbox.name == "docker":
        client = worker.handle._launch.result().client
        return client.api.inspect_container(worker.handle.container)["State"]["Pid"]
    return child_pids(worker.handle.process.pid)[0]


def begun_tests(server: int) -> list[int]:
    """The PIDs of tests whose programs have begun, as their second threads show."""
    return [pid for pid in child_pids(server) if len([*Path(f"/proc/{pid}/task").glob("*")]) > 1]


def running_test(server: int) -> int:
    """The PID of the first test whose program begins."""
    begun = eventually(lambda: begun_tests(server), pause=0.005)
    assert begun, "no test has begun"
    return begun[0]


def below(pid: int) -> list[int]:
    return [found for child in child_pids(pid) for found in (child, *below(child))]


TARGETS: dict[str, Callable[[int], list[int]]] = {
    "test": lambda server: [running_test(server)],
    "server": lambda server: [server] * (running_test(server) > 0),
    "zygote": lambda server: [min(child_pids(server))] * (running_test(server) > 0),
    "all": lambda server: [server, *below(server)] * (running_test(server) > 0),
}


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stopping(sandbox: Sandbox, target: str, seconds: float) -> threading.Thread:
    """Stop processes of the first test that begins, and continue them later."""

    def stop() -> None:
        pids = TARGETS[target](server)
        send(pids, signal.SIGSTOP)
        time.sleep(seconds)
        send(pids, signal.SIGCONT)

    server = server_of(sandbox)
    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def judged(sandbox: Sandbox, program: str, target: str, seconds: float) -> Verdict:
    problem = Problem("nap", "", (), (Test("", "done"),), time_limit_s=WALL_S / 3)
    judge = Judge(sandbox, JudgeConfig(time_factor=1.0, time_margin=0.0))
    thread = stopping(sandbox, target, seconds)
    [judgement] = judge.judge([Submission(problem, program)])
    thread.join()
    assert sandbox.replaced == 0
    return judgement.verdict


@pytest.mark.parametrize(("sandbox", "target"), on_sandboxes(*TARGETS), indirect=["sandbox"])
def test_a_program_in_time_is_accepted_whatever_is_stopped_meanwhile(sandbox, target):
    assert judged(sandbox, RIGHT, target, STOP_S) is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("sandbox", "target"), on_sandboxes("all", "server", "test"), indirect=["sandbox"]
)
def test_one_that_sleeps_too_long_gains_nothing(sandbox, target):
    """While the server is stopped, it prints the right answer too late, and nobody sees when."""
    assert judged(sandbox, TOO_LONG, target, STOP_S) is Verdict.TIME_LIMIT


@pytest.mark.slow  # it waits for ten seconds
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sandbox", EVERY_SANDBOX, indirect=True)
@pytest.mark.parametrize(
    ("program", "verdict"), [(RIGHT, Verdict.ACCEPTED), (TOO_LONG, Verdict.TIME_LIMIT)]
)
def test_ten_seconds_change_no_verdict(sandbox, target, program, verdict):
    assert judged(sandbox, program, target, 10.0) is verdict


@pytest.mark.docker
@pytest.mark.parametrize("sandbox", ["docker"], indirect=True)
@pytest.mark.parametrize(
    ("program", "verdict"), [(RIGHT, Verdict.ACCEPTED), (TOO_LONG, Verdict.TIME_LIMIT)]
)
def test_a_paused_container_changes_no_verdict(sandbox, program, verdict, monkeypatch):
    api, container = connect().api, next(iter(sandbox._connections)).handle.container

    def pause(pids: list[int], number: int) -> None:
        (api.pause if number == signal.SIGSTOP else api.unpause)(container)

    monkeypatch.setattr("tests.envs.sandbox.test_stalls.send", pause)
    assert judged(sandbox, program, "server", STOP_S) is verdict


@pytest.mark.parametrize("sandbox", ["namespaces"], indirect=True)
def test_a_test_that_is_stopped_again_and_again_ends_by_its_limit(sandbox):
    """As one that stops itself would."""
    ended, server = threading.Event(), server_of(sandbox)

    def stop() -> None:
        pid = running_test(server)
        while not ended.wait(0.02):
            send([pid], signal.SIGSTOP)

    thread = threading.Thread(target=stop)
    thread.start()
    limits = Limits(cpu_s=1.0, wall_s=WALL_S)
    [(_, [execution])] = sandbox.run([Job(NAP.format(60), ("",), limits)], lambda *_: True)
    ended.set()
    thread.join()
    assert execution.outcome is Outcome.TIME_LIMIT
    assert sandbox.replaced == 0


# In a PID namespace of its own a program cannot stop itself.
STOPS_ITSELF = tool("stops_itself.py")


@pytest.mark.parametrize("sandbox", ["landlock"], indirect=True)
def test_a_program_that_stops_itself_is_at_its_limit(sandbox):
    limits = Limits(cpu_s=5.0, wall_s=WALL_S)
    [(_, [execution])] = sandbox.run([Job(STOPS_ITSELF, ("",), limits)], lambda *_: True)
    assert execution.outcome is Outcome.TIME_LIMIT
    assert sandbox.replaced == 0


@pytest.mark.parametrize("sandbox", ["landlock"], indirect=True)
def test_the_kernel_ends_no_program_at_the_limit_which_the_worker_watches(sandbox):
    program = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CPU)[1])"
    limits = Limits(cpu_s=7.0, wall_s=WALL_S)
    [(_, [execution])] = sandbox.run([Job(program, ("",), limits)], lambda *_: True)
    assert int(execution.stdout) > 1.5 * 7  # it counts ticks, of which a busy machine has too many


# In a PID namespace of its own, a program can only have the kernel end it, at its own CPU limit.
KILLS_ITSELF = (
    "import resource, signal, threading\nsignal.pthread_kill(threading.get_ident(), 9)\n"
    "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass"
)
# How often a test is killed from outside; its program, and the verdict.
KILLED = {
    "once": (1, NAP.format(1.5), Verdict.ACCEPTED),
    "twice": (2, NAP.format(1.5), Verdict.RUNTIME_ERROR),
    "by itself": (0, KILLS_ITSELF, Verdict.RUNTIME_ERROR),
}


@pytest.mark.parametrize(
    ("sandbox", "case"),
    on_sandboxes("once", "by itself") + on_sandboxes("twice"),
    indirect=["sandbox"],
)
def test_a_killed_test_runs_once_more_on_another_worker_and_is_not_remembered(
    sandbox, case, tmp_path
):
    kills, program, verdict = KILLED[case]
    problem = Problem("nap", "", (), (Test("", "done"),), time_limit_s=9.0)
    ended, servers = threading.Event(), set()

    def kill() -> None:
        while len(servers) < kills and not ended.wait(0.005):
            with contextlib.suppress(ValueError, IndexError):  # between two workers
                server = server_of(sandbox)
                if server not in servers and (pids := begun_tests(server)):
                    send(pids, signal.SIGKILL)
                    servers.add(server)

    thread = threading.Thread(target=kill)
    thread.start()
    judge = Judge(sandbox, verdicts=VerdictCache(tmp_path / "verdicts"))
    [judged] = judge.judge([Submission(problem, program)])
    ended.set()
    thread.join()
    assert (judged.verdict, len(servers), judge.stats.judged_again) == (verdict, kills, 1), judged
    assert bool(judge.state_dict()["cache"]) == (case == "once")
    later = Judge(sandbox, verdicts=judge.verdicts)
    later.judge([Submission(problem, program)])
    assert later.stats.programs_recalled == 0
