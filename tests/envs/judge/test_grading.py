"""One execution to a grade, many grades to a summary."""

import time

import pytest

from envs.judge.grading import (
    MAX_DETAIL_CHARS,
    MAX_EXCEPTION_CHARS,
    MAX_OUTPUT_CHARS,
    Budget,
    Grade,
    exception_text,
    grade,
    summarize,
)
from envs.problem import Problem, Test, Verdict
from envs.sandbox.base import Execution, Outcome

LIMIT_S = 2.0
PROBLEM = Problem("p", "", (), (Test("1", "1"), Test("2", "2"), Test("3", "3")))
OK = Grade(Verdict.ACCEPTED)
WRONG = Grade(Verdict.WRONG_ANSWER, "token 1")
LATE = Grade(Verdict.TIME_LIMIT, "late", doubtful=True)
TIMED_OUT = Grade(Verdict.TIME_LIMIT)
LOST = Grade(Verdict.INFRA_ERROR, "lost", doubtful=True)


@pytest.mark.parametrize(
    ("outcome", "fields", "verdict", "doubtful", "by_wall_time"),
    [
        ("TIME_LIMIT", {"cpu_s": 0.1}, "TIME_LIMIT", False, True),
        ("TIME_LIMIT", {"cpu_s": 1.2}, "TIME_LIMIT", True, True),
        ("TIME_LIMIT", {"cpu_s": 1.2, "accounted": True}, "TIME_LIMIT", False, True),
        ("TIME_LIMIT", {"cpu_s": 2.4}, "TIME_LIMIT", False, False),
        ("FINISHED", {"late": True}, "ACCEPTED", True, True),
        ("FINISHED", {"late": True, "stdout": b"8"}, "WRONG_ANSWER", True, True),
        ("FINISHED", {"stdout": b"8"}, "WRONG_ANSWER", False, False),
        ("FINISHED", {"cpu_s": 2.1}, "TIME_LIMIT", True, False),
        ("RUNTIME_ERROR", {"late": True}, "RUNTIME_ERROR", True, True),
        ("RUNTIME_ERROR", {"killed": True}, "RUNTIME_ERROR", True, True),
        ("FINISHED", {"cpu_s": 1.9}, "ACCEPTED", False, False),
        ("FINISHED", {"stdout": b"8", "cpu_s": 2.1}, "WRONG_ANSWER", False, False),
        *((end, {}, end, False, False) for end in ("RUNTIME_ERROR", "MEMORY_LIMIT")),
        *((end, {}, end, False, False) for end in ("OUTPUT_LIMIT", "SYNTAX_ERROR")),
        *((end, {}, "INFRA_ERROR", True, False) for end in ("STARVED", "INFRA_ERROR")),
    ],
)
def test_how_a_test_ended_and_which_times_decide(outcome, fields, verdict, doubtful, by_wall_time):
    execution = Execution(Outcome(outcome), **{"stdout": b"7", "wall_s": 9.0} | fields)
    found = grade("tokens", "7", LIMIT_S, execution)
    assert (found.verdict, found.doubtful) == (verdict, doubtful)
    assert found.by_wall_time is by_wall_time


def test_the_reason_says_what_was_lost():
    execution = Execution(Outcome.TIME_LIMIT, cpu_s=0.5, wall_s=13.6, lost_s=10.0)
    said = "0.50 s CPU, 13.60 s wall, 10.00 s of it stopped or without a core (limit 2 s CPU)"
    assert grade("tokens", "7", LIMIT_S, execution).detail == said


@pytest.mark.parametrize(
    ("grades", "early_stop", "expected"),
    [
        ([OK, OK, OK], True, ("ACCEPTED", 3, 3, None, False)),
        ([OK, WRONG], True, ("WRONG_ANSWER", 1, 2, 1, False)),
        ([OK, WRONG, OK], True, ("WRONG_ANSWER", 1, 2, 1, False)),
        ([OK, WRONG, OK], False, ("WRONG_ANSWER", 2, 3, 1, False)),
        ([WRONG, LATE, OK], True, ("WRONG_ANSWER", 0, 1, 0, False)),
        ([WRONG, LATE, OK], False, ("WRONG_ANSWER", 1, 3, 0, True)),
        ([WRONG, LOST], False, ("INFRA_ERROR", 0, 1, None, True)),
        ([LOST], True, ("INFRA_ERROR", 0, 0, None, True)),
        ([Grade(Verdict.SYNTAX_ERROR)], False, ("SYNTAX_ERROR", 0, 0, 0, False)),
        ([OK, OK], True, ("INFRA_ERROR", 2, 2, None, True)),
        ([], True, ("INFRA_ERROR", 0, 0, None, True)),
    ],
)
def test_summary(grades, early_stop, expected):
    found, failed, doubtful = summarize(PROBLEM, "x", grades, [2, 1, 0], early_stop=early_stop)
    position = None if failed is None else 2 - failed
    assert (found.verdict, found.passed, found.run, position, doubtful) == expected


@pytest.mark.parametrize(
    ("checker", "stdout", "output"),
    [
        ("tokens", b"8\n9\n", "8\n9\n"),
        ("tokens", b"\x1b[2J\xff", "⟨U+001B⟩[2J�"),
        ("tokens", b"<f at 0x7f00aa>", "<f at 0x…>"),
        ("tokens", b"", ""),
        ("tokens", b"8" * 10**6, "8" * (MAX_OUTPUT_CHARS - 1) + "…"),
        ("tokens", "𝟠".encode() * MAX_OUTPUT_CHARS, "𝟠" * MAX_OUTPUT_CHARS),
        ("call", b'{"": ["tuple", [1, "a"]]}', "(1, 'a')"),
        ("call", b"[" * 10**5, "[" * (MAX_OUTPUT_CHARS - 1) + "…"),
        ("assert", b"not JSON", "not JSON"),
    ],
)
def test_a_wrong_output_is_kept_short_and_visible(checker, stdout, output):
    expected = "result == 7" if checker == "assert" else "7"
    found = grade(checker, expected, LIMIT_S, Execution(Outcome.FINISHED, stdout))
    assert (found.verdict, found.output) == (Verdict.WRONG_ANSWER, output)


def test_the_judgement_names_the_test_and_stays_short():
    found, *_ = summarize(PROBLEM, "x", [OK, WRONG], [0, 2, 1], early_stop=True)
    assert (found.detail, found.total, found.problem_hash) == ("test 2: token 1", 3, PROBLEM.hash)
    assert found.failed_test == 2
    long = Grade(Verdict.RUNTIME_ERROR, "x" * 5000 + "the end")
    found, *_ = summarize(PROBLEM, "x", [long], [0, 1, 2], early_stop=True)
    assert len(found.detail) == MAX_DETAIL_CHARS + 1
    assert found.detail.endswith("the end")


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


@pytest.mark.parametrize(
    ("grade", "times", "ended"),
    [
        (OK, [(0.9, 0.0)] * 200, None),
        (WRONG, [(0.9, 0.0)] * 200, None),
        (OK, [(0.0, 0.9)] * 4, 3),
        (WRONG, [(0.0, 0.9)] * 4, 3),
        (TIMED_OUT, [(1.2, 0.0)] * 3, 2),
        (TIMED_OUT, [(0.0, 1.0)] * 3, None),
        (TIMED_OUT, [(0.0, 1.0)] * 4, 3),
    ],
)
def test_what_uses_it_up(grade, times, ended):
    budget = Budget(cpu_s=3.0, idle_s=3.0)
    charged = [budget.charge(grade, *time) for time in times]
    assert [bool(one.ended) for one in charged] == [at == ended for at in range(len(times))]
    assert budget.fresh() == Budget(3.0, 3.0)
