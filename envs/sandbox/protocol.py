"""The frames that host and worker exchange, and their decoding on the host.

The format itself is defined in `inside/channel.py`, which must stand alone inside the cage; this is
the host's half.

Host to worker: PROGRAM (JSON header + source), then one INPUT per test (raw stdin bytes), then END.
Worker to host: READY once; for each PROGRAM one COMPILED, one RESULT per test in order, one ENDED.
Or SHOT (as PROGRAM) and one INPUT, to be followed by anything: answered by one RESULT, or by one
COMPILED that says why there is no program. After a PROGRAM's RESULT that is not FINISHED, or a
COMPILED that is not, the worker drops further INPUTs until it reads RESUME or END, so that inputs
sent ahead cost nothing when the host stops early.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from envs.sandbox.base import Execution, Job, Outcome
from envs.sandbox.inside.framing import (
    COMPILED,
    END,
    ENDED,
    HEADER,
    INPUT,
    ONE_SHOT,
    PROGRAM,
    READY,
    RESULT,
    RESUME,
    join_body,
    split_body,
)

__all__ = [
    "COMPILED",
    "END",
    "ENDED",
    "INPUT",
    "PROGRAM",
    "READY",
    "RESULT",
    "RESUME",
    "Frame",
    "FrameDecoder",
    "ProtocolError",
    "encode",
    "encode_input",
    "encode_program",
    "encode_shot",
    "execution",
]


class ProtocolError(RuntimeError):
    """What came from a worker is not a frame: the worker is replaced."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One decoded message."""

    kind: int
    payload: bytes

    def json(self) -> dict:
        """The payload as a JSON object. Raises ProtocolError if it is none."""
        try:
            return json.loads(self.payload)
        except ValueError as error:
            raise ProtocolError(f"a frame of kind {self.kind} holds no JSON") from error


class FrameDecoder:
    """Turns a stream of bytes, cut anywhere, into frames."""

    def __init__(self, max_payload: int = 1 << 30) -> None:
        self.max_payload = max_payload
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes; return the frames that are now complete.

        Raises ProtocolError on an unknown kind or a length above `max_payload`.
        """
        self._buffer += data
        frames, start = [], 0
        while len(self._buffer) - start >= HEADER.size:
            kind, length = HEADER.unpack_from(self._buffer, start)
            if kind not in (READY, COMPILED, RESULT, ENDED) or length > self.max_payload:
                raise ProtocolError(f"not a frame: kind {kind}, length {length}")
            end = start + HEADER.size + length
            if len(self._buffer) < end:
                break
            frames.append(Frame(kind, bytes(self._buffer[start + HEADER.size : end])))
            start = end
        del self._buffer[:start]
        return frames


def encode(kind: int, payload: bytes = b"") -> bytes:
    """One frame as bytes."""
    return HEADER.pack(kind, len(payload)) + payload


def encode_program(job: Job, kind: int = PROGRAM) -> bytes:
    """The PROGRAM frame of a job: its limits and its source, none of its inputs."""
    limits = job.limits
    header = {
        "cpu_s": limits.cpu_s,
        "wall_s": limits.wall_s,
        "memory_mb": limits.memory_mb,
        "output_mb": limits.output_mb,
        "fn_name": job.fn_name,
    }
    return encode(kind, join_body(header, job.program.encode("utf-8", "surrogatepass")))


def encode_shot(job: Job) -> bytes:
    """A job's program and its first input."""
    return encode_program(job, ONE_SHOT) + encode_input(job.inputs[0])


def encode_input(text: str) -> bytes:
    """The INPUT frame of one test."""
    return encode(INPUT, text.encode("utf-8", "surrogatepass"))


def execution(frame: Frame) -> Execution:
    """The Execution that a RESULT or an unsuccessful COMPILED frame tells of."""
    try:
        header, stdout = split_body(frame.payload)
        return Execution(
            outcome=Outcome(header["outcome"]),
            stdout=stdout,
            stderr=header["stderr"],
            exit_code=header["exit_code"],
            cpu_s=header["cpu_s"],
            wall_s=header["wall_s"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ProtocolError(f"a malformed result: {error!r}") from error
