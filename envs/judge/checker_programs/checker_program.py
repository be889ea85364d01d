"""Checker programs: how one is run in the sandbox, and what its run says of an output.

A checker program is an ordinary job of the sandbox (`envs/sandbox`), with the rights and limits of
a contestant's program. Its input holds three texts: the test's input, the expected output and the
program's output. It finds them as files, which are in its own memory: nothing is writable in a
sandbox. A job of its own runs after the judged program has ended, so that program never shares a
process with a checker or an expected output.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum

from envs.problem import Test
from envs.readable import readable
from envs.sandbox.base import Execution, Outcome

PROGRAM = "program"  # the checker of a problem that a checker program decides
OUTPUT_LIMIT_MB = 1  # of a checker's stdout, of which the last word counts
_MAX_REASON_CHARS = 200

# The names that open-r1/codeforces documents, in the order of its arguments.
PYTHON_FILES = ("input.txt", "correct_output.txt", "solution_output.txt")

# A text without one of these holds finite numbers alone: letters of a NaN, an infinity or an
# exponent, digits of other scripts, very many digits.
_PERHAPS_NOT_FINITE = re.compile(rb"[nNeE\x80-\xff]|(?<![0-9_.])[0-9_.]{309}")

# Python checkers open their files by name, or ask for their sizes. Python's own limit on the digits
# of an integer is in force again, as where such checkers are written: an output of a million digits
# would take a checker its whole time.
_PYTHON_FILES_IN_MEMORY = """\
def _open_files_in_memory(names):
    import builtins, io, os, stat, sys

    data = sys.stdin.buffer.read()
    sizes, _, data = data.partition(b"\\n")
    files = {}
    for name, size in zip(names, map(int, sizes.split())):
        files[name], data = data[:size], data[size:]
    sys.set_int_max_str_digits(max(4300, *(len(files[name]) for name in names[:2])))
    open_plain, stat_plain = builtins.open, os.stat

    def find(path):
        known = isinstance(path, (str, os.PathLike))
        return files.get(os.path.basename(os.fspath(path))) if known else None

    def open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *others):
        content = find(file)
        if content is None:
            return open_plain(file, mode, buffering, encoding, errors, newline, *others)
        if set(mode) & set("wax+"):
            raise PermissionError(f"read-only: {file!r}")
        raw = io.BufferedReader(io.BytesIO(content))
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding, errors, newline)

    def stat_file(path, **options):
        content = find(path)
        if content is None:
            return stat_plain(path, **options)
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, len(content), 0, 0, 0))

    builtins.open = io.open = open
    os.stat = os.lstat = stat_file
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    sys.argv = ["checker.py", *names]
"""


class Finding(Enum):
    """What one run of a checker shows."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CRASHED = "crashed"  # without a decision: the output is malformed, or the checker is broken
    FAULT = "fault"  # the checker's own failure
    UNKNOWN = "unknown"  # the sandbox failed


@dataclass(frozen=True, slots=True)
class Decision:
    """A checker's decision on one output."""

    finding: Finding
    reason: str = ""
    at_limit: bool = False  # the checker exceeded a limit
    by_wall_time: bool = False  # of wall time


def python_program(source: str) -> str:
    """Return the program that runs a Python checker on files in memory."""
    return (
        f"{_PYTHON_FILES_IN_MEMORY}\n_open_files_in_memory({PYTHON_FILES!r})\n"
        f"del _open_files_in_memory\nexec(compile({source!r}, 'checker.py', 'exec'))\n"
    )


def checker_input(language: str, test: Test, output: bytes) -> bytes:
    """Return the three texts in the order of the checker's arguments, behind their sizes."""
    given, expected = (text.encode("utf-8", "surrogatepass") for text in (test.input, test.output))
    files = (given, expected, output) if language == "python" else (given, output, expected)
    sizes = " ".join(str(len(content)) for content in files)
    return b"".join((sizes.encode(), b"\n", *files))


def decide(language: str, execution: Execution) -> Decision:
    """Return what a checker's run says.

    A Python checker accepts if it ends without an error and the last word that it prints is 1. One
    on testlib says it by its exit status: 0 accepts; 1 (wrong), 2 (format), 4 (more than the
    answer), 8 (less) and 16 to 216 (a share of points) reject. 7 (points) rejects too, because no
    problem here says how many are all. 3 and any other status, an exception, a signal and a limit
    that it exceeds are no decision: whose fault they are, the expected output shows.
    """
    outcome, reason = execution.outcome, _last_line(execution.stderr)
    if outcome in (Outcome.INFRA_ERROR, Outcome.STARVED):
        return Decision(Finding.UNKNOWN, reason)
    if outcome is Outcome.FINISHED:
        if language == "testlib":
            return Decision(Finding.ACCEPTED)
        if execution.stdout.split()[-1:] == [b"1"]:
            return Decision(Finding.ACCEPTED)
        return Decision(Finding.REJECTED, "the checker rejects it")
    if outcome is not Outcome.RUNTIME_ERROR:
        finding = Finding.FAULT if outcome is Outcome.SYNTAX_ERROR else Finding.CRASHED
        at_limit = finding is Finding.CRASHED
        return Decision(finding, f"the checker ends with {outcome}", at_limit=at_limit)
    status = execution.exit_code
    if status is None or status < 0:
        return Decision(Finding.CRASHED, f"the checker ends by signal {-(status or 0)}")
    if language == "python":
        return Decision(Finding.CRASHED, f"the checker ends with an error: {reason}")
    if status in (1, 2, 4, 7, 8) or 16 <= status <= 216:
        return Decision(Finding.REJECTED, reason or f"the checker's exit status is {status}")
    return Decision(Finding.CRASHED, f"the checker fails (exit status {status}): {reason}")


def is_no_number(output: bytes, expected: str) -> bool:
    """Return whether an output has a NaN or an infinity where the expected one has numbers.

    Every comparison with a NaN is false. So a checker that rejects a difference of more than 1e-6
    would accept a NaN for any number, and an infinity where it divides by that.
    """
    if not _PERHAPS_NOT_FINITE.search(output):
        return False
    text = output.decode("utf-8", "replace")
    found = [word for word in text.split() if _is_finite(word) is False]
    words = expected.split()
    finite = list(map(_is_finite, words)) if found else []
    if not finite or False in finite:
        return False
    if any(is_number and "." in word for word, is_number in zip(words, finite, strict=True)):
        return True
    # Integers of many digits are no infinities to checkers that read them as integers.
    return None not in finite and not all(word.strip("+-").isdecimal() for word in found)


def _is_finite(word: str) -> bool | None:
    """Return whether the number that a word stands for is finite; None if it is no number."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return None


def _last_line(text: str) -> str:
    """Return the end of a message, which may quote a hostile output."""
    return readable(text.strip().rpartition("\n")[2][:_MAX_REASON_CHARS])
