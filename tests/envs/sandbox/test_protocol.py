"""Frames are whole however the stream is cut; deadlines of a connection on a scripted handle."""

import time

import pytest

from envs.sandbox import protocol
from envs.sandbox.base import Job, Limits, Outcome
from envs.sandbox.inside.framing import join_body, patience_s, report
from envs.sandbox.protocol import Task, WorkerConnection, WorkerHandle, WorkerLost

RESULT = {
    "outcome": "TIME_LIMIT",
    "stderr": "ä",
    "exit_code": -9,
    "cpu_s": 2.0,
    "wall_s": 2.5,
}


def test_frames_come_out_of_a_stream_cut_anywhere():
    body = join_body(RESULT, b"\x00output")
    frames = [(protocol.READY, b"{}"), (protocol.RESULT, body), (protocol.ENDED, b"")]
    stream = b"".join(protocol.encode(*frame) for frame in frames)
    for size in (1, 2, 5, 7, len(stream)):
        splitter = protocol.Splitter()
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert [frame for piece in pieces for frame in splitter.feed(piece)] == frames
    execution = protocol.execution_of(body)
    assert execution.outcome is Outcome.TIME_LIMIT
    assert (execution.stdout, execution.stderr, execution.exit_code) == (b"\x00output", "ä", -9)


@pytest.mark.parametrize("stream", [b"Traceback (most recent call last)", b"\xff" * 5])
def test_what_is_no_frame_is_refused_before_it_is_awaited(stream):
    with pytest.raises(protocol.ProtocolError, match="not a frame"):
        protocol.Splitter().feed(stream)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00\x00\x00\x02{}", b"\xff\xff\xff\xff", join_body(RESULT | {"outcome": "FINE"})],
)
def test_a_malformed_result_is_refused(payload):
    with pytest.raises(protocol.ProtocolError):
        protocol.execution_of(payload)


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
    assert patience(connection) < patience_s(0.3) + 0.6 + protocol.GRACE_S
    assert answer(connection, protocol.RESULT) == [quick]
    assert connection.deadline is None


def test_a_frame_of_no_job_loses_the_worker(connection):
    with pytest.raises(WorkerLost, match="an unexpected frame"):
        answer(connection, protocol.RESULT)
