"""Text of a program cannot steer a terminal."""

import pytest

from envs.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("right\rwrong", r"right\rwrong"),
        ("\u202eevil\u202c", r"\u202eevil\u202c"),
        ("a\u2028b", r"a\u2028b"),
        ("\ud800", r"\ud800"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
    ],
)
def test_what_steers_or_hides_is_written_out(text, shown):
    assert printable(text) == shown
    assert printable(text).isascii()


@pytest.mark.parametrize("text", ["", "a\tb\nc", "naïve Ünïcode 日本 → ✓", "print('x')", r"\x1b"])
def test_visible_text_stays(text):
    assert printable(text) == text
