"""The pool: frames are whole, nothing is lost, nothing hangs, nothing is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from envs.sandbox import pool
from envs.sandbox.base import Job, Limits, Outcome, SandboxError
from envs.sandbox.embedded import EmbeddedSandbox, EmbeddedWorker, strongest_form, worker_config
from envs.sandbox.inside.framing import join_body, patience_s, report
from envs.sandbox.pool import Pool, Task, WorkerConnection, WorkerHandle, WorkerLost
from tests.envs.sandbox.host import child_pids, eventually, is_running

ROOT = Path(__file__).parents[3]
DOUBLE = "print(int(input()) * 2)"


@pytest.fixture(scope="module")
def form():
    try:
        return strongest_form(i_accept_no_isolation=False)
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def shared(form):
    with EmbeddedSandbox(workers=2, form=form) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(form):
    """One that a test may damage."""
    with EmbeddedSandbox(workers=2, form=form) as sandbox:
        yield sandbox


def go_on(job, test, execution):
    return True


def processes(sandbox):
    """The guards of the workers that have started."""
    return [worker.handle.process for worker in sandbox._connections if worker.ready]


def test_every_job_comes_back_with_its_executions_in_order(shared):
    jobs = [Job(DOUBLE, tuple(str(10 * i + j) for j in range(i % 5))) for i in range(40)]
    results = dict(shared.run(jobs, go_on))
    assert sorted(results) == list(range(40))
    for i, executions in results.items():
        expected = [f"{2 * (10 * i + j)}\n".encode() for j in range(i % 5)]
        assert [execution.stdout for execution in executions] == expected


def test_the_callback_sees_every_execution_once_and_stops_a_job(shared):
    seen = []

    def stop_after_third(job, test, execution):
        seen.append((job, test))
        return test < 2

    jobs = [Job(DOUBLE, tuple("0123456789")) for _ in range(6)]
    results = dict(shared.run(jobs, stop_after_third))
    assert all(len(executions) == 3 for executions in results.values())
    assert sorted(seen) == [(job, test) for job in range(6) for test in range(3)]


def test_a_job_goes_on_after_failures_if_asked_to(shared):
    program = "n = int(input())\nassert n % 2\nprint(n)"
    [(_, executions)] = shared.run([Job(program, tuple("0123456"))], go_on)
    outcomes = [execution.outcome for execution in executions]
    assert outcomes == [Outcome.RUNTIME_ERROR, Outcome.FINISHED] * 3 + [Outcome.RUNTIME_ERROR]
    assert [execution.stdout for execution in executions[1::2]] == [b"1\n", b"3\n", b"5\n"]


def test_a_program_that_does_not_compile_is_one_execution(shared):
    called = []
    jobs = [Job("print(", ("1", "2")), Job("print(", ()), Job("pass", ())]
    results = dict(shared.run(jobs, lambda *arguments: called.append(arguments)))
    assert [execution.outcome for execution in results[0]] == [Outcome.SYNTAX_ERROR]
    assert [execution.outcome for execution in results[1]] == [Outcome.SYNTAX_ERROR]
    assert results[2] == []
    assert called == []


@pytest.mark.parametrize("kill_guard", [True, False])
def test_a_killed_worker_loses_nothing(sandbox, kill_guard):
    kills = []

    def kill_once(job, test, execution):
        if test == 5 and not kills:
            kills.append(job)
            for process in processes(sandbox):
                [server] = child_pids(process.pid)
                os.kill(process.pid if kill_guard else server, signal.SIGKILL)
            time.sleep(0.05)
        return True

    jobs = [Job(DOUBLE, tuple(map(str, range(20)))) for _ in range(8)]
    results = dict(sandbox.run(jobs, kill_once))
    assert sandbox.replaced >= 1
    for executions in results.values():
        assert [int(execution.stdout) for execution in executions] == list(range(0, 40, 2))


def test_a_stuck_worker_is_replaced(sandbox, monkeypatch):
    monkeypatch.setattr(pool, "GRACE_S", 0.5)
    monkeypatch.setattr(pool, "patience_s", lambda wall_s: 1.5)
    stopped = []

    def stop_once(job, test, execution):
        if test == 3 and not stopped:
            stopped.append(job)
            for process in processes(sandbox):
                os.killpg(process.pid, signal.SIGSTOP)
        return True

    limits = Limits(cpu_s=0.5, wall_s=0.5)
    jobs = [Job(DOUBLE, tuple(map(str, range(10))), limits) for _ in range(4)]
    results = dict(sandbox.run(jobs, stop_once))
    assert sandbox.replaced >= 1
    for executions in results.values():
        assert [int(execution.stdout) for execution in executions] == list(range(0, 20, 2))


def test_a_job_that_loses_every_worker_is_given_up(sandbox):
    class Poisoned(EmbeddedWorker):
        """Dies of each program that names the poison, before it says anything of it."""

        poisoned = dead = False

        def send(self, data):
            self.poisoned |= b"poison" in bytes(data)
            return super().send(data)

        def receive(self):
            data = super().receive()
            if data and self.poisoned:
                self.process.kill()
                self.dead = True
            return b"" if self.dead else data

    config = worker_config(sandbox.form)
    with Pool(lambda: Poisoned(config), 2, name="poisoned", strength="") as pool:
        jobs = [Job("'poison'", ("",)), Job(DOUBLE, ("4",))]
        results = dict(pool.run(jobs, go_on))
    assert results[0][-1].outcome is Outcome.INFRA_ERROR
    assert results[1][-1].stdout == b"8\n"


def test_closing_leaves_no_process_and_no_descriptor(form):
    before = child_pids(), len(os.listdir("/proc/self/fd"))
    sandbox = EmbeddedSandbox(workers=2, form=form)
    run = sandbox.run([Job("while True: pass", ("",))] * 2 + [Job(DOUBLE, ("1",))], go_on)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        list(run)
    sandbox.close()
    sandbox.close()
    assert (child_pids(), len(os.listdir("/proc/self/fd"))) == before
    with pytest.raises(SandboxError, match="closed"):
        list(sandbox.run([Job(DOUBLE, ("1",))], go_on))


HOST = """
import sys
from envs.sandbox.base import Job, Limits
from envs.sandbox.embedded import EmbeddedSandbox
with EmbeddedSandbox(2, form=sys.argv[1]) as sandbox:
    jobs = [Job("while True: pass", ("",) * 99, Limits(cpu_s=0.1, wall_s=1.0))] * 2
    list(sandbox.run(jobs, lambda *_: print("running", flush=True) is None))
"""


def test_workers_die_with_their_host(form):
    command = [sys.executable, "-c", HOST, form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as host:
        assert host.stdout.readline() == "running\n"
        below = [pid for guard in child_pids(host.pid) for pid in (guard, *child_pids(guard))]
        assert len(below) >= 2  # at least one guard and its server
        host.kill()
    assert eventually(lambda: not any(map(is_running, below))), "workers outlive their host"


def test_one_run_at_a_time(sandbox):
    first = sandbox.run([Job(DOUBLE, ("1",))] * 4, go_on)
    next(first)
    with pytest.raises(SandboxError, match="running other jobs"):
        next(sandbox.run([Job(DOUBLE, ("1",))], go_on))
    assert len(list(first)) == 3
    assert len(list(sandbox.run([Job(DOUBLE, ("1",))], go_on))) == 1


def test_workers_that_cannot_start_end_the_run_with_the_reason(form):
    config = worker_config(form) | {"form": "nonsense"}
    with (
        Pool(lambda: EmbeddedWorker(config), 1, name="broken", strength="") as pool,
        pytest.raises(SandboxError, match=r"do not start.*nonsense"),
    ):
        list(pool.run([Job(DOUBLE, ("1",))], go_on))


RESULT = {"outcome": "TIME_LIMIT", "stderr": "ä", "exit_code": -9, "cpu_s": 2.0, "wall_s": 2.5}


def test_frames_come_out_of_a_stream_cut_anywhere():
    body = join_body(RESULT, b"\x00output")
    frames = [(pool.READY, b"{}"), (pool.RESULT, body), (pool.ENDED, b"")]
    stream = b"".join(pool.encode(*frame) for frame in frames)
    for size in (1, 2, 5, 7, len(stream)):
        splitter = pool.Splitter()
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert [frame for piece in pieces for frame in splitter.feed(piece)] == frames
    execution = pool.execution_of(body)
    assert execution.outcome is Outcome.TIME_LIMIT
    assert (execution.stdout, execution.stderr, execution.exit_code) == (b"\x00output", "ä", -9)


@pytest.mark.parametrize("stream", [b"Traceback (most recent call last)", b"\xff" * 5])
def test_what_is_no_frame_is_refused_before_it_is_awaited(stream):
    with pytest.raises(pool.WorkerLost, match="not a frame"):
        pool.Splitter().feed(stream)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00\x00\x00\x02{}", b"\xff\xff\xff\xff", join_body(RESULT | {"outcome": "FINE"})],
)
def test_a_malformed_result_is_refused(payload):
    with pytest.raises(pool.WorkerLost):
        pool.execution_of(payload)


FINISHED = join_body(report("FINISHED"))


class Scripted(WorkerHandle):
    """Takes all that is sent, and returns the bytes that a test puts into `answers`."""

    def __init__(self):
        self.answers, self.sent, self.socket = [], b"", object()

    def start(self):
        pass

    def fileno(self):
        return -1

    def send(self, data):
        self.sent += data
        return len(data)

    def receive(self):
        return self.answers.pop(0) if self.answers else None

    def kill(self):
        pass


def answer(connection, *kinds, keep_going=False):
    """Have the worker send frames; return the tasks that it released."""
    connection.handle.answers.append(b"".join(pool.encode(k, FINISHED) for k in kinds))
    return connection.receive(lambda *_: keep_going)


@pytest.fixture
def connection():
    connection = WorkerConnection(Scripted())
    assert answer(connection, pool.READY) == []
    assert connection.ready and connection.deadline is None
    return connection


def patience(connection):
    """Seconds from now to the deadline."""
    return connection.deadline - time.monotonic()


def test_an_input_that_runs_in_vain_is_not_held_against_the_next_job(connection):
    """It was sent ahead, and may use up its limits before the next job's first frame."""
    slow = Task(0, Job("slow", ("0", "1", "2"), Limits(cpu_s=50.0, wall_s=100.0), promising=True))
    quick = Task(1, Job("quick", ("4",), Limits(cpu_s=0.3, wall_s=0.3)))
    connection.begin(slow)
    assert answer(connection, pool.COMPILED, pool.RESULT) == [slow]
    assert slow.done and len(slow.executions) == 1
    connection.begin(quick)
    assert patience(connection) > patience_s(100.0)
    assert answer(connection, pool.RESULT) == [] == quick.executions  # of the slow job
    assert patience(connection) > patience_s(100.0)
    assert answer(connection, pool.ENDED) == []
    assert patience(connection) < patience_s(0.3) + 0.6 + pool.GRACE_S
    assert answer(connection, pool.RESULT) == [quick]
    assert connection.deadline is None


def test_a_frame_of_no_job_loses_the_worker(connection):
    with pytest.raises(WorkerLost, match="an unexpected frame"):
        answer(connection, pool.RESULT)
