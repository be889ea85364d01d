"""Unpack tests that a data set stores as base64 of zlib of a pickle, without running the pickle.

`pickle.loads` runs whatever a file asks for. This reader follows a pickle's opcodes itself and
knows only those that build texts, numbers, true, false, null, lists and dicts. A value may occur
twice only if it is short, like the key of a dict: repeated references would make a small file a
huge value. Every size is bounded before its memory is taken.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib
from typing import Any

from envs.tasks.parsers.field_parsers import SkipRow, load_json

# LiveCodeBench's own reader takes any size. Its largest rows hold about a hundred megabytes.
MAX_PACKED = 256 * 2**20  # characters of base64
MAX_UNPACKED = 512 * 2**20  # bytes of the pickle
MAX_OPCODES = 1_000_000
MAX_REPEATED = 100  # characters of a text that occurs twice

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
}
_MEMOIZE = ("MEMOIZE", "BINPUT", "LONG_BINPUT")
_RECALL = ("BINGET", "LONG_BINGET")
_MARK = object()


def load_tests(packed: Any, what: str) -> Any:
    """Return the value of a column of packed tests, which may also be plain JSON.

    Raises SkipRow if it is broken, too large, or asks for anything but plain values.
    """
    if not isinstance(packed, str):
        return packed
    if packed.lstrip()[:1] in ("[", "{", ""):
        return load_json(packed, what)
    value = read_pickle(_inflate(packed, what), what)
    return load_json(value, what) if isinstance(value, str) else value


def _inflate(packed: str, what: str) -> bytes:
    if len(packed) > MAX_PACKED:
        raise SkipRow(f"{what} are over {MAX_PACKED >> 20} MiB")
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED)
    except (binascii.Error, ValueError, zlib.error):
        raise SkipRow(f"{what} are neither JSON nor base64 of zlib") from None
    if stream.unconsumed_tail:
        raise SkipRow(f"{what} are over {MAX_UNPACKED >> 20} MiB unpacked")
    if not stream.eof:
        raise SkipRow(f"{what} are cut off")
    return content


def read_pickle(content: bytes, what: str) -> Any:
    """Return the plain value of a pickle. Raises SkipRow for any other pickle."""
    reader = _Reader(what)
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if number > MAX_OPCODES:
                raise SkipRow(f"{what} have over {MAX_OPCODES} values")
            reader.apply(opcode.name, argument)
        (value,) = reader.stack
    except SkipRow:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError):
        raise SkipRow(f"{what} are a broken pickle") from None
    if value is _MARK:
        raise SkipRow(f"{what} are a broken pickle")
    return value


class _Reader:
    """The stack of a pickle machine that builds plain values only."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}  # values that may occur twice; _MARK for the others

    def apply(self, name: str, argument: Any) -> None:
        """Follow one opcode. Raises SkipRow if it builds anything but plain values."""
        stack = self.stack
        if name in ("PROTO", "FRAME", "STOP"):
            return
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            stack.append(argument)
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _MEMOIZE:
            index = len(self.memo) if name == "MEMOIZE" else argument
            self.memo[index] = stack[-1] if _is_short(stack[-1]) else _MARK
        elif name in _RECALL:
            if (value := self.memo[argument]) is _MARK:
                raise SkipRow(f"{self.what} hold a large value twice")
            stack.append(value)
        elif name in ("APPEND", "APPENDS"):
            items = self._pop(1) if name == "APPEND" else self._pop_to_mark()
            _container(stack, list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if name == "SETITEM" else self._pop_to_mark()
            _container(stack, dict).update(zip(items[::2], items[1::2], strict=True))
        else:
            raise SkipRow(f"{self.what} ask for more than plain values ({name})")

    def _pop(self, count: int) -> list[Any]:
        items = self.stack[-count:]
        del self.stack[-count:]
        if len(items) < count or any(item is _MARK for item in items):
            raise ValueError("too few values")
        return items

    def _pop_to_mark(self) -> list[Any]:
        for start in range(len(self.stack) - 1, -1, -1):
            if self.stack[start] is _MARK:
                items = self.stack[start + 1 :]
                del self.stack[start:]
                return items
        raise ValueError("no mark")


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_REPEATED
    return value is None or isinstance(value, int | float)


def _container(stack: list[Any], kind: type) -> Any:
    """Return the list or dict that the next items belong to."""
    if not isinstance(stack[-1], kind):
        raise ValueError(f"not a {kind.__name__}")
    return stack[-1]
