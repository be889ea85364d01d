"""The host's half of the frames between host and worker.

The format is defined in `inside/framing.py`, which must stand alone inside the sandbox.

Host to worker:
- PROGRAM (JSON header and source), then one INPUT per test (raw stdin bytes), then END;
- or ONE_SHOT (as PROGRAM) and one INPUT, followed by anything;
- RESUME after a test that did not finish.

Worker to host:
- READY once;
- for each PROGRAM one COMPILED, one RESULT per test in order, one ENDED;
- for each ONE_SHOT one RESULT, or one COMPILED that says why there is no program.

After a RESULT or COMPILED that is not FINISHED, the worker drops a PROGRAM's further INPUTs until
it reads RESUME or END. So inputs that were sent ahead cost nothing when the host stops early.
"""

from __future__ import annotations

from dataclasses import dataclass

from envs.sandbox.base import Execution, Job, Outcome
from envs.sandbox.inside.framing import (
    COMPILED,
    ENDED,
    HEADER,
    INPUT,
    ONE_SHOT,
    PROGRAM,
    READY,
    RESULT,
    join_body,
    split_body,
)


class ProtocolError(RuntimeError):
    """A worker sent something that is not a frame, so it is replaced."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One decoded message."""

    kind: int
    payload: bytes


class FrameDecoder:
    """Splits a stream of bytes, which may arrive in any pieces, into frames."""

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
    """Return one frame as bytes."""
    return HEADER.pack(kind, len(payload)) + payload


def encode_program(job: Job, kind: int = PROGRAM) -> bytes:
    """Return the PROGRAM frame of a job: its limits and its source, none of its inputs."""
    limits = job.limits
    header = {
        "cpu_s": limits.cpu_s,
        "wall_s": limits.wall_s,
        "memory_mb": limits.memory_mb,
        "output_mb": limits.output_mb,
        "fn_name": job.fn_name,
    }
    return encode(kind, join_body(header, job.program.encode("utf-8", "surrogatepass")))


def encode_one_shot(job: Job) -> bytes:
    """Return the frames of a job's program and its first input."""
    return encode_program(job, ONE_SHOT) + encode_input(job.inputs[0])


def encode_input(content: str | bytes) -> bytes:
    """Return the INPUT frame of one test."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return encode(INPUT, content)


def execution(frame: Frame) -> Execution:
    """Return the Execution in a RESULT or an unsuccessful COMPILED frame.

    Raises ProtocolError if the frame is malformed.
    """
    try:
        header, stdout = split_body(frame.payload)
        return Execution(
            outcome=Outcome(header["outcome"]),
            stdout=stdout,
            stderr=header["stderr"],
            exit_code=header["exit_code"],
            cpu_s=header["cpu_s"],
            wall_s=header["wall_s"],
            # Absent from the result of a short test.
            lost_s=header.get("lost_s", 0.0),
            idle_s=header.get("idle_s", 0.0),
            accounted=header.get("accounted", False),
            late=header.get("late", False),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ProtocolError(f"a malformed result: {error!r}") from error
