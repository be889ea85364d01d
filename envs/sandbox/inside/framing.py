"""The frames between host and worker, the worker's end of the stream, and the values in a frame.

A frame is a kind (1 byte), a length (4 bytes, big endian) and a payload. Nothing is read ahead.

Arguments and results of called functions are JSON, with tags for what JSON lacks. A tag is an
object with the single key "": `{"": ["tuple", [1, 2]]}`. The host compares results by Python's
`==`, so a result keeps its type: a list is a list, and a generator is neither consumed nor sent.
Only the built-in part of a value is sent, so no method of a program's class decides what its value
equals. A program can write anything in place of its result; the host only compares it.
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
import time
from json import dumps, loads

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


TAG = ""
_BEGINNING_OF_TAG = '{"": ['
_SMALL = 1 << 63  # integers below it are sent as decimal digits
_MAX_NAME_CHARS = 80
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.items()))

_FROM_TAG: dict[str, Callable[[Any], object]] = {
    "tuple": tuple,
    "set": set,
    "dict": dict,
    "bytes": bytes.fromhex,
    "int": lambda digits: int(digits, 16),
    "complex": lambda parts: complex(*parts),
}


def encode(value: Any) -> str:
    """Return the text of a value. Raises RecursionError for one that is nested too deep."""
    return dumps(_plain(value))


def decode(text: str) -> Any:
    """Return the value of a text from the host, which tags only what `_FROM_TAG` names."""
    return loads(text, object_hook=_untag) if _BEGINNING_OF_TAG in text else loads(text)


def _untag(members: dict[str, Any]) -> object:
    match members:
        case {"": [str(name), payload]} if len(members) == 1 and name in _FROM_TAG:
            return _FROM_TAG[name](payload)
    return members


def _tag(name: str, *payload: object) -> dict[str, Any]:
    return {TAG: [name, *payload]}


def _plain(value: Any) -> Any:
    """Return what json writes for a value: itself, or a tag."""
    kind = type(value)  # unlike `isinstance`, not to be deceived by `__class__`
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return value if -_SMALL <= value < _SMALL else _tag("int", hex(value))
    if kind is list:
        return _plain_items(value)
    return _plain_of_class(kind, value)


def _plain_items(items: list[Any]) -> list[Any]:
    """Return the items' plain values. Long lists of simple items are not walked through."""
    kinds = set(map(type, items))
    if kinds == {int}:
        simple = min(items) >= -_SMALL and max(items) < _SMALL
    else:
        simple = kinds <= {bool, str, float, type(None)}
    return items if simple else [_plain(item) for item in items]


def _plain_of_class(kind: type, value: Any) -> Any:
    """Return the plain value of a container, or of an instance of a class.

    An instance of a subclass (a named tuple, a Counter, an IntEnum) is sent as its built-in base
    class has it.
    """
    for base, plain in _OF_BASE:
        if issubclass(kind, base):
            return plain(value)
    if kind in _VIEWS:  # equal to a set of the same items
        return _tag("set", _plain_items(list(value)))
    return _plain_of_library(kind, value)


# A built-in class, and what is sent of its instances and of its subclasses'.
_OF_BASE: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (tuple, lambda value: _tag("tuple", _plain_items(list(tuple.__iter__(value))))),
    (dict, lambda value: _plain_dict(list(dict.items(value)))),
    (set, lambda value: _tag("set", _plain_items(list(set.__iter__(value))))),
    (frozenset, lambda value: _tag("set", _plain_items(list(frozenset.__iter__(value))))),
    (list, lambda value: _plain_items(list(list.__iter__(value)))),
    (str, str.__str__),
    (int, lambda value: _plain(int.__int__(value))),
    (float, float.__float__),
    (
        complex,
        lambda value: _tag("complex", [complex.real.__get__(value), complex.imag.__get__(value)]),
    ),
    (bytes, lambda value: _tag("bytes", bytes.hex(value))),
    (bytearray, lambda value: _tag("bytes", bytearray.hex(value))),
)


def _plain_dict(items: list[tuple[Any, Any]]) -> dict[str, Any]:
    if all(type(key) is str and key != TAG for key, _ in items):
        return {key: _plain(item) for key, item in items}
    return _tag("dict", [[_plain(key), _plain(item)] for key, item in items])


def _plain_of_library(kind: type, value: Any) -> Any:
    """Return the plain value of numpy's, fractions' or decimal's, or the tag `other`.

    The tag holds the class's name and whether the value counts as true.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return _tag("array", _plain(value.tolist()))
    if numpy is not None and issubclass(kind, numpy.generic):
        item = value.item()
        if type(item) is bool:  # numpy's True equals True, but is another object
            return int(item)
        if type(item) is not kind:
            return _plain(item)
    for module, name in ("fractions", "Fraction"), ("decimal", "Decimal"):
        if module in sys.modules and issubclass(kind, getattr(sys.modules[module], name)):
            try:
                return _tag(name, *map(hex, value.as_integer_ratio()))
            except (OverflowError, ValueError):  # infinite, or not a number
                return float(value)
    name = kind.__name__
    try:
        true = bool(value)
    except Exception:
        true = False
    return _tag("other", name[:_MAX_NAME_CHARS] if type(name) is str else "object", true)
