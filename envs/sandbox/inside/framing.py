"""The frames between host and worker, and the worker's end of the stream.

A frame is a kind (1 byte), a length (4 bytes, big endian) and a payload. Nothing is read ahead.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

HEADER = struct.Struct(">BI")
PROGRAM, INPUT, RESUME, END, ONE_SHOT = 1, 2, 3, 4, 5  # host to worker
READY, COMPILED, RESULT, ENDED = 17, 18, 19, 20  # worker to host
STDERR_TAIL = 2000  # characters

HOLD_S = 0.005  # the longest time that a result is held back
_HELD_BYTES = 1 << 16
_CHUNK = 1 << 20


def join_body(header: dict[str, Any], data: bytes = b"") -> bytes:
    """Return a body: the length of the JSON header (4 bytes), the header, raw bytes."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "big") + text + data


def split_body(body: bytes) -> tuple[dict[str, Any], bytes]:
    """Invert `join_body`."""
    end = 4 + int.from_bytes(body[:4], "big")
    return json.loads(body[4:end]), body[end:]


def report(outcome: str, stderr: str = "") -> dict[str, Any]:
    """Return the header of a COMPILED frame: FINISHED, or why the program cannot run."""
    return {
        "outcome": outcome,
        "stderr": stderr[-STDERR_TAIL:],
        "exit_code": None,
        "cpu_s": 0.0,
        "wall_s": 0.0,
    }


def patience_s(wall_s: float) -> float:
    """Return the seconds after which a test is given up that got no core for its wall limit."""
    return max(4 * wall_s, 5.0)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write everything to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Channel:
    """The stream to the host. A process that reads its end exits, since nobody waits for it.

    Results of short tests are held back while further inputs are ready to run, so that host,
    engine and kernel wake up once for several of them.
    """

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        self.held, self._held_since = b"", 0.0
        self._poll = select.poll()
        self._poll.register(source, select.POLLIN)

    def close(self) -> None:
        """Cut this process off the host."""
        os.close(self.source)
        os.close(self.sink)

    def read_header(self) -> tuple[int, int]:
        """Return kind and payload length of the next frame."""
        late = time.monotonic() - self._held_since > HOLD_S
        if self.held and (late or not self._poll.poll(0)):
            self.flush()
        return HEADER.unpack(self.read(HEADER.size))

    def read(self, length: int) -> bytes:
        """Read exactly `length` bytes."""
        return b"".join(self.pieces(length))

    def pieces(self, length: int) -> Iterator[bytes]:
        """Yield the next `length` bytes in pieces."""
        while length:
            piece = os.read(self.source, min(length, _CHUNK))
            if not piece:
                os._exit(0)
            yield piece
            length -= len(piece)

    def read_into(self, file: int, length: int) -> None:
        """Move a payload of `length` bytes to a file."""
        for piece in self.pieces(length):
            write_all(file, piece)

    def skip(self, length: int) -> None:
        """Drop a payload of any length, without memory for it."""
        for _ in self.pieces(length):
            pass

    def skip_to_end(self) -> None:
        """Drop all frames up to the program's END, and acknowledge it."""
        kind = None
        while kind != END:
            kind, length = self.read_header()
            self.skip(length)
        self.send(ENDED, {})

    def send(self, kind: int, header: dict[str, Any]) -> None:
        """Send a frame with a JSON header and no further bytes, at once."""
        self.flush()
        body = join_body(header)
        write_all(self.sink, HEADER.pack(kind, len(body)) + body)

    def send_result(self, header: dict[str, Any], stdout: int, size: int) -> None:
        """Send a RESULT frame, now or soon; its last `size` bytes come from the file `stdout`."""
        body = join_body(header)
        frame = HEADER.pack(RESULT, len(body) + size) + body
        if len(self.held) + len(frame) + size <= _HELD_BYTES:
            if not self.held:
                self._held_since = time.monotonic()
            self.held += frame + os.pread(stdout, size, 0)
            return
        self.flush()
        write_all(self.sink, frame)
        for offset in range(0, size, _CHUNK):
            write_all(self.sink, os.pread(stdout, min(size - offset, _CHUNK), offset))

    def flush(self) -> None:
        """Send the results that are held back."""
        if self.held:
            write_all(self.sink, self.held)
            self.held = b""
