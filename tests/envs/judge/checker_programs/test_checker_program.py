"""What a checker's run says, and the files that a checker in Python sees."""

import subprocess
import sys

import pytest

from envs.judge.checker_program import (
    PYTHON_FILES,
    checker_input,
    decide,
    is_no_number,
    python_program,
)
from envs.problem import Test
from envs.sandbox.base import Execution, Outcome

FINISHED, ENDED = Outcome.FINISHED, Outcome.RUNTIME_ERROR
DECISIONS = {
    ("python", FINISHED, 0, b"1\n"): "accepted",
    ("python", FINISHED, 0, b"a word, 1"): "accepted",
    ("python", FINISHED, 0, b"1 0"): "rejected",
    ("python", FINISHED, 0, b"1.0"): "rejected",
    ("python", FINISHED, 0, b"11"): "rejected",
    ("python", FINISHED, 0, b""): "rejected",
    ("python", ENDED, 1, b"1"): "crashed",
    ("python", ENDED, -11, b"1"): "crashed",
    ("testlib", FINISHED, 0, b""): "accepted",
    ("testlib", ENDED, 1, b""): "rejected",
    ("testlib", ENDED, 2, b""): "rejected",
    ("testlib", ENDED, 3, b""): "crashed",
    ("testlib", ENDED, 4, b""): "rejected",
    ("testlib", ENDED, 5, b""): "crashed",
    ("testlib", ENDED, 7, b""): "rejected",
    ("testlib", ENDED, 8, b""): "rejected",
    ("testlib", ENDED, 16, b""): "rejected",
    ("testlib", ENDED, 216, b""): "rejected",
    ("testlib", ENDED, 255, b""): "crashed",
    ("testlib", ENDED, -6, b""): "crashed",
    ("testlib", Outcome.TIME_LIMIT, -9, b""): "crashed",
    ("testlib", Outcome.OUTPUT_LIMIT, 0, b""): "crashed",
    ("python", Outcome.MEMORY_LIMIT, 1, b""): "crashed",
    ("python", Outcome.STARVED, None, b""): "unknown",
    ("python", Outcome.INFRA_ERROR, None, b""): "unknown",
    ("python", Outcome.SYNTAX_ERROR, None, b""): "fault",
}


@pytest.mark.parametrize("run", DECISIONS, ids=str)
def test_decisions(run):
    language, outcome, status, stdout = run
    execution = Execution(outcome, stdout, "the reason", status)
    assert decide(language, execution).finding.value == DECISIONS[run]


def test_a_reason_is_one_short_line_of_visible_text():
    stderr = "first\nfound '\x1b[31m" + "x" * 1000
    reason = decide("testlib", Execution(ENDED, b"", stderr, 1)).reason
    assert reason.startswith("found '⟨U+001B⟩[31mx") and len(reason) < 210


@pytest.mark.parametrize("output", [b"", b"2 3\n", b"\xff\x00\r\n", b"x" * 100_000])
def test_a_python_checker_sees_three_files(output):
    source = """
import io, os, pathlib, sys
given, expected, output = sys.argv[1:]
assert open(given).read() == "5\\n", open(given).read()
with io.open(expected, encoding="utf-8") as file:
    assert list(file) == ["1 4\\n", "\\u00e9\\n"]
assert pathlib.Path(output).read_bytes() == open(output, "rb").read()
assert os.path.exists(output) and os.path.isfile(output) and not os.path.exists("other.txt")
assert os.path.samestat(os.stat(output), os.stat(os.path.abspath(output)))
assert open(os.path.abspath(given)).read() == "5\\n"
assert os.path.getsize(output) == len(open(output, "rb").read())
assert sys.stdin.read() == "" and __name__ == "__main__"
for mode in "wxa":
    try:
        open(output, mode)
    except PermissionError:
        continue
    raise AssertionError(mode)
try:
    open("other.txt")
except FileNotFoundError:
    sys.stdout.buffer.write(open(output, "rb").read())
"""
    test = Test("5\n", "1 4\né\n")
    command = [sys.executable, "-c", python_program(source)]
    given = checker_input("python", test, output)
    done = subprocess.run(command, input=given, capture_output=True, timeout=60)
    assert done.stdout == output and not done.stderr, done.stderr.decode()


def test_arguments_are_in_the_order_of_each_kind():
    test = Test("in", "right")
    assert checker_input("python", test, b"out\n") == b"2 5 4\ninrightout\n"
    assert checker_input("testlib", test, b"out\n") == b"2 4 5\ninout\nright"
    assert len(PYTHON_FILES) == 3


# (output, expected output) -> whether it has a NaN or an infinity for a number
NO_NUMBERS = {
    (b"nan", "2.5"): True,
    (b"1.0 -NaN\n", "3 0.5"): True,
    (b"+Infinity", "YES 0.5"): True,
    (b"1e999", "7"): True,
    ("\uff11e999".encode(), "7"): True,
    (b"9" * 400, "2.5"): True,
    (b"-" + b"9" * 400, "12"): False,  # a checker may read it as an integer
    (b"9" * 400, "7" * 400 + ".5"): False,
    (b"inf", "inf"): False,
    (b"nan", "nan 0.5"): False,
    (b"nan", "palindrome 3"): False,
    (b"nan", ""): False,
    (b"one 1e5 \xff", "2.5"): False,
}


@pytest.mark.parametrize("case", NO_NUMBERS, ids=lambda case: str(case)[:40])
def test_a_nan_is_no_number(case):
    assert is_no_number(*case) is NO_NUMBERS[case]
