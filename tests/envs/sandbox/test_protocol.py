"""Frames: whole however the stream is cut; anything else is an error."""

import pytest

from envs.sandbox import protocol
from envs.sandbox.base import Job, Limits, Outcome
from envs.sandbox.inside.framing import HEADER, join_body, split_body

RESULT = {
    "outcome": "TIME_LIMIT",
    "stderr": "ä",
    "exit_code": -9,
    "cpu_s": 2.0,
    "wall_s": 2.5,
}


def test_frames_come_out_of_a_stream_cut_anywhere():
    first = protocol.encode(protocol.READY, b"{}")
    second = protocol.encode(protocol.RESULT, join_body(RESULT, b"\x00output"))
    stream = first + second + first
    for size in (1, 2, 5, 7, len(stream)):
        decoder = protocol.FrameDecoder()
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        frames = [frame for piece in pieces for frame in decoder.feed(piece)]
        assert [frame.kind for frame in frames] == [
            protocol.READY,
            protocol.RESULT,
            protocol.READY,
        ]
    execution = protocol.execution(frames[1])
    assert execution.outcome is Outcome.TIME_LIMIT
    assert (execution.stdout, execution.stderr, execution.exit_code) == (b"\x00output", "ä", -9)


@pytest.mark.parametrize(
    "stream", [b"Traceback (most recent call last)", HEADER.pack(protocol.INPUT, 0), b"\xff" * 5]
)
def test_what_is_no_frame_is_refused(stream):
    with pytest.raises(protocol.ProtocolError):
        protocol.FrameDecoder().feed(stream)


def test_a_length_beyond_the_bound_is_refused_before_it_is_awaited():
    with pytest.raises(protocol.ProtocolError, match="length 1001"):
        protocol.FrameDecoder(1000).feed(HEADER.pack(protocol.RESULT, 1001))


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00\x00\x00\x02{}", b"\xff\xff\xff\xff", join_body(RESULT | {"outcome": "FINE"})],
)
def test_a_malformed_result_is_refused(payload):
    with pytest.raises(protocol.ProtocolError):
        protocol.execution(protocol.Frame(protocol.RESULT, payload))


def test_a_program_frame_holds_limits_and_source_and_no_input():
    job = Job("print('ä')", ("secret input",), Limits(1.5, 6.0, 64, 2), "f")
    frame = protocol.encode_program(job)
    kind, length = HEADER.unpack_from(frame)
    assert (kind, length) == (protocol.PROGRAM, len(frame) - HEADER.size)
    header, source = split_body(frame[HEADER.size :])
    assert header == {
        "cpu_s": 1.5,
        "wall_s": 6.0,
        "memory_mb": 64,
        "output_mb": 2,
        "fn_name": "f",
    }
    assert source.decode() == job.program
    assert b"secret" not in frame


def test_lone_surrogates_survive_as_bytes():
    assert protocol.encode_input("\ud800")[HEADER.size :] == b"\xed\xa0\x80"
