"""Text from run folders as it may be shown: nothing in it moves a cursor or turns a line round."""

from __future__ import annotations

import re

# C0 and C1 controls but for the line's end and the tab, line and paragraph separators, marks that
# turn the direction of text or hide in it, and what no file (lone surrogates) or no XML can hold.
ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)


def readable(text: str) -> str:
    """The text with each such character as its number: ⟨U+202E⟩."""
    return ODD.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text)
