"""A worker's connection on a scripted handle: its deadlines."""

import time

import pytest

from envs.sandbox import protocol, worker
from envs.sandbox.base import Job, Limits
from envs.sandbox.inside.framing import join_body, patience_s, report
from envs.sandbox.worker import Task, WorkerConnection, WorkerHandle, WorkerLost

FINISHED = join_body(report("FINISHED"))


class Scripted(WorkerHandle):
    """Takes all that is sent, and returns the bytes that a test puts into `answers`."""

    def __init__(self):
        self.answers, self.sent = [], b""

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
    connection.handle.answers.append(b"".join(protocol.encode(k, FINISHED) for k in kinds))
    return connection.receive(lambda *_: keep_going)


@pytest.fixture
def connection():
    connection = WorkerConnection(Scripted())
    assert answer(connection, protocol.READY) == []
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
    assert answer(connection, protocol.COMPILED, protocol.RESULT) == [slow]
    assert slow.done and len(slow.executions) == 1
    connection.begin(quick)
    assert patience(connection) > patience_s(100.0)
    assert answer(connection, protocol.RESULT) == [] == quick.executions  # of the slow job
    assert patience(connection) > patience_s(100.0)
    assert answer(connection, protocol.ENDED) == []
    assert patience(connection) < patience_s(0.3) + 0.6 + worker.GRACE_S
    assert answer(connection, protocol.RESULT) == [quick]
    assert connection.deadline is None


def test_a_frame_of_no_job_loses_the_worker(connection):
    with pytest.raises(WorkerLost, match="an unexpected frame"):
        answer(connection, protocol.RESULT)
