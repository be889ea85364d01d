"""The exception behind a program's end, from the end of its stderr."""

import time

import pytest

from envs.judge.grading import MAX_EXCEPTION_CHARS, exception_text

HEAD = "Traceback (most recent call last):\n"
MAIN = '  File "main.py", line {}, in <module>\n'
LIBRARY = '  File "/usr/lib/json/decoder.py", line 353, in raw_decode\n    obj\n    ^^^\n'
CALLER = '  File "<envs.sandbox.inside.program>", line 231, in call_function\n'
SAID = {
    HEAD + MAIN.format(3) + "ValueError: no": "line 3: ValueError: no",
    HEAD + MAIN.format(3) + MAIN.format(12) + "E": "line 12: E",
    HEAD + MAIN.format(2) + LIBRARY + "json.E: at 1": "line 2: json.E: at 1",
    HEAD + MAIN.format(2) + "  [Previous line repeated 9 more times]\nE: x": "line 2: E: x",
    HEAD + MAIN.format(1) + "E: a\nb\n  c\n": "line 1: E: a\nb\n  c",
    HEAD + MAIN.format(1) + "A\n\nDuring …:\n\n" + HEAD + MAIN.format(4) + "B": "line 4: B",
    "own text\n" + HEAD + MAIN.format(1) + "E: x": "line 1: E: x",
    MAIN.format(7)[5:] + MAIN.format(8) + "E: x": "line 8: E: x",  # the tail of a traceback
    HEAD + LIBRARY + "E: x": "E: x",
    HEAD + CALLER + "KeyError: 'f'": "NameError: name 'f' is not defined",
    HEAD + CALLER + MAIN.format(2) + "KeyError: 'f'": "line 2: KeyError: 'f'",
    "SyntaxError: invalid syntax (main.py, line 2)": "line 2: SyntaxError: invalid syntax",
    "stopped: no answer\n": "stopped: no answer",
    HEAD + MAIN.format(1) + "E: <f at 0x7f83f30728e0>": "line 1: E: <f at 0x…>",
    "": "",
}


@pytest.mark.parametrize("stderr", SAID)
def test_type_message_and_line(stderr):
    assert exception_text(stderr) == SAID[stderr]


def test_a_long_or_hostile_message_is_short_visible_and_fast():
    found = exception_text(HEAD + MAIN.format(5) + "E: " + "x" * 5000 + "end")
    assert found.startswith("line 5: E: xxx") and found.endswith("xend")
    assert len(found) == MAX_EXCEPTION_CHARS
    for hostile in ("\x1b[2J\ud800", '  File "main.py", line 1\n', HEAD, "at 0x", " (", "\n "):
        began = time.process_time()
        found = exception_text(hostile * 50_000)
        assert time.process_time() - began < 1
        assert len(found) <= MAX_EXCEPTION_CHARS
        assert not {"\x1b", "\ud800"} & set(found)
