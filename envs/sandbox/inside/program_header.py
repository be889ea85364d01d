"""What a new process is told of the program that it is to be: worked out by the server.

A forked process copies each page that it writes to: to take a JSON text apart, or to search one,
costs it more than to compile a short program. The server is never forked.
"""

from __future__ import annotations

import marshal
import os
import re

from envs.sandbox.inside.interpreter_shutdown import NOTICING

# Loaded when the program's text names them: once per program, not once per test.
ON_DEMAND = ("array", "copy", "dataclasses", "datetime", "decimal", "fractions", "numpy", "queue")
ON_DEMAND += ("random", "statistics", "string", "threading", "traceback", "typing")
_NAMED = re.compile(rf"\b(?:{'|'.join(ON_DEMAND)})\b")


def briefing(limits: dict, source: bytes) -> bytes:
    """The limits, the program as a text, and what that names."""
    text = source.decode("utf-8", "surrogatepass").removeprefix("\ufeff")
    named = set(_NAMED.findall(text))
    known = {
        "source": text,
        "modules": tuple(name for name in ON_DEMAND if name in named),
        "threads": "thread" in text.lower(),
        "may_notice": bool(NOTICING.search(text)),
        "names_ctypes": "ctypes" in text,
    }
    return marshal.dumps(limits | known)


def read_briefing(file: int) -> dict:
    """The inverse, from a file that is closed then."""
    told = os.pread(file, os.lseek(file, 0, os.SEEK_END), 0)
    os.close(file)
    return marshal.loads(told)
