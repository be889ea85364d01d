"""The exception that ended a program, in one or two lines: its type and message, and where.

A traceback names the files of the sandbox and of the library, and the judge keeps only its end. Of
all its frames one says most, the last one in the program itself.
"""

from __future__ import annotations

import re

from envs.readable import readable

MAX_EXCEPTION_CHARS = 500

_FRAME = re.compile(r'^  File "main\.py", line ([0-9]{1,9})', re.MULTILINE)
# The sandbox's own frame, where it calls the problem's function; a KeyError there is its absence.
_CALLER = '  File "<envs.sandbox.inside.program>"'
_NO_FUNCTION = "KeyError: "
_HEAD = "Traceback (most recent call last):\n"
_IN_SYNTAX_ERROR = re.compile(r" \((?:main\.py, )?line ([0-9]{1,9})\)$")
_INDENTED = (" ", "\t")
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]+")


def exception_text(stderr: str) -> str:
    """Return `line 3: ZeroDivisionError: division by zero` from the end of a program's stderr.

    Without a traceback it is what the program wrote there, such as the text of `sys.exit(TEXT)`.
    The line is left out where no frame of the program is left. At most MAX_EXCEPTION_CHARS, the
    middle left out, and readable.
    """
    text = stderr.strip("\n")
    before, head, traceback = text.rpartition(_HEAD)
    frames = list(_FRAME.finditer(text, len(before)))
    if head or frames:
        line = frames[-1][1] if frames else None
        message = _after_frames(traceback if head else text)
        if line is None and _CALLER in traceback and message.startswith(_NO_FUNCTION):
            message = f"NameError: name {message.removeprefix(_NO_FUNCTION)} is not defined"
    elif found := _IN_SYNTAX_ERROR.search(text):
        line, message = found[1], text[: found.start()]
    else:
        line, message = None, text
    message = message.strip()
    return _bounded(f"line {line}: {message}" if line and message else message)


def _after_frames(traceback: str) -> str:
    """Return what follows the last frame's lines: the exception, whose message may have several."""
    lines = traceback.split("\n")
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    first = frames[-1] + 1 if frames else 0
    while first < len(lines) - 1 and lines[first].startswith(_INDENTED):
        first += 1  # the line of the source, marks below it, "[Previous line repeated …]"
    return "\n".join(lines[first:])


def without_addresses(text: str) -> str:
    """Return a text with `at 0x…` for an object's address, which is another one in each run."""
    return _ADDRESS.sub("at 0x…", text)


def _bounded(text: str) -> str:
    text = readable(without_addresses(text))
    if len(text) <= MAX_EXCEPTION_CHARS:
        return text
    half = MAX_EXCEPTION_CHARS // 2
    return f"{text[:half]}…{text[1 - half :]}"
