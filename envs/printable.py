"""Untrusted text made fit for a terminal, a log or a message."""

from __future__ import annotations

import re
import unicodedata

# Control characters but tab and newline, and what changes the direction or the place of others.
_UNSAFE = re.compile(r"[^\t\n\x20-\x7e]")
_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str) -> str:
    r"""Return the text with invisible and control characters written out, e.g. `\x1b`.

    A program's output may hold escape sequences that retitle a terminal, move its cursor or
    overwrite earlier lines. Tabs, newlines and all visible characters stay.
    """
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if unicodedata.category(character) not in _CATEGORIES:
        return character
    return character.encode("unicode_escape").decode("ascii")
