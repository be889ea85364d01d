"""Read the items of a JSON file that is one array, in memory for one item at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TextIO

_STRUCTURE = re.compile(r'["{}\[\],]')
_CHUNK = 1 << 20  # characters read at once


def starts_array(file: TextIO) -> bool:
    """Return whether the first character other than white space opens an array; rewind."""
    beginning = file.read(4096).lstrip("\ufeff \t\r\n")
    file.seek(0)
    return beginning.startswith("[")


def array_items(file: TextIO) -> Iterator[str]:
    """Yield the text of each item. Raises ValueError if the array is not closed."""
    scanner = _Scanner()
    while chunk := file.read(_CHUNK):
        yield from scanner.feed(chunk)
    if scanner.depth or not scanner.closed:
        raise ValueError("the array is not closed")


class _Scanner:
    """Cuts text at the commas of the outermost array, in linear time."""

    def __init__(self) -> None:
        self.depth = 0  # of brackets and braces; 1: between the items
        self.closed = False
        self.in_string = self.escaped = False
        self.parts: list[str] = []  # of the present item

    def feed(self, chunk: str) -> Iterator[str]:
        start = position = 0
        while position < len(chunk) and not self.closed:
            if self.in_string:
                position = self._string_end(chunk, position)
                continue
            match = _STRUCTURE.search(chunk, position)
            if match is None:
                break
            position = match.end()
            cuts = self._follow(match[0])
            if cuts:
                self.parts.append(chunk[start : match.start()])
                start = position
                if item := "".join(self.parts).strip():
                    yield item
                self.parts = []
        self.parts.append(chunk[start:])

    def _follow(self, character: str) -> bool:
        """Follow one structural character; return whether the text before it is an item."""
        if character == '"':
            self.in_string = True
        elif character == ",":
            return self.depth == 1
        elif character in "{[":
            self.depth += 1
            return self.depth == 1
        else:
            self.depth -= 1
            self.closed = self.depth == 0
            return self.closed
        return False

    def _string_end(self, chunk: str, position: int) -> int:
        """Return the position after the string's closing quote, or the chunk's end."""
        if self.escaped:  # the chunk before ended with a backslash
            self.escaped = False
            position += 1
        while (quote := chunk.find('"', position)) >= 0:
            backslashes = quote - len(chunk[position:quote].rstrip("\\")) - position
            if backslashes % 2 == 0:
                self.in_string = False
                return quote + 1
            position = quote + 1
        rest = chunk[position:]
        self.escaped = (len(rest) - len(rest.rstrip("\\"))) % 2 == 1
        return len(chunk)
