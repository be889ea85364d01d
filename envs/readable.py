"""Make text of others safe to show: no character moves a cursor or reverses a line.

Programs, their output, and the texts of data sets reach a terminal, a log or a page only through
`readable`.
"""

from __future__ import annotations

import re

MAX_ERROR_CHARS = 2000  # of a one-line error, which may quote a row

# C0 and C1 controls except line feed and tab, line and paragraph separators, bidirectional and
# invisible marks, and characters that no file (lone surrogates) or no XML can hold.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)


def readable(text: str, most: int | None = None) -> str:
    """Return the text with each unsafe character as its code point: ⟨U+202E⟩.

    Only the first `most` characters are read; the total is added if there are more.
    """
    rest = "" if most is None or len(text) <= most else f"… ({len(text)} characters)"
    return UNSAFE.sub(lambda match: f"⟨U+{ord(match.group()):04X}⟩", text[:most]) + rest
