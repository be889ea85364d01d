"""One execution to a grade, many grades to a summary."""

import pytest

from envs.judge.grading import (
    MAX_DETAIL_CHARS,
    MAX_OUTPUT_CHARS,
    Grade,
    grade,
    judgement,
    summarize,
)
from envs.problem import Problem, Test, Verdict
from envs.sandbox.base import Execution, Outcome

LIMIT_S = 2.0
OK = Grade(Verdict.ACCEPTED)
WRONG = Grade(Verdict.WRONG_ANSWER, "token 1")
LATE = Grade(Verdict.TIME_LIMIT, "late", doubtful=True)
LOST = Grade(Verdict.INFRA_ERROR, "lost", doubtful=True)


@pytest.mark.parametrize(
    ("outcome", "stdout", "cpu_s", "verdict", "doubtful"),
    [
        (Outcome.FINISHED, b"7\n", 1.9, "ACCEPTED", False),
        (Outcome.FINISHED, b"8\n", 1.9, "WRONG_ANSWER", False),
        (Outcome.FINISHED, b"7\n", 2.1, "TIME_LIMIT", True),
        (Outcome.FINISHED, b"8\n", 2.1, "WRONG_ANSWER", False),
        (Outcome.TIME_LIMIT, b"", 2.4, "TIME_LIMIT", False),
        (Outcome.TIME_LIMIT, b"7\n", 1.2, "TIME_LIMIT", True),
        (Outcome.TIME_LIMIT, b"7\n", 0.01, "TIME_LIMIT", False),
        (Outcome.RUNTIME_ERROR, b"7\n", 0.1, "RUNTIME_ERROR", False),
        (Outcome.MEMORY_LIMIT, b"7\n", 0.1, "MEMORY_LIMIT", False),
        (Outcome.OUTPUT_LIMIT, b"7\n", 0.1, "OUTPUT_LIMIT", False),
        (Outcome.SYNTAX_ERROR, b"", 0.0, "SYNTAX_ERROR", False),
        (Outcome.INFRA_ERROR, b"7\n", 0.1, "INFRA_ERROR", True),
    ],
)
def test_grade(outcome, stdout, cpu_s, verdict, doubtful):
    found = grade("tokens", "7", LIMIT_S, Execution(outcome, stdout, cpu_s=cpu_s))
    assert (found.verdict, found.doubtful) == (verdict, doubtful)


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
        ("STARVED", {}, "INFRA_ERROR", True, False),
    ],
)
def test_what_wall_time_decides(outcome, fields, verdict, doubtful, by_wall_time):
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
    s = summarize(grades, 3, early_stop=early_stop)
    assert (s.verdict, s.passed, s.run, s.failed_position, s.doubtful) == expected


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
    problem = Problem("p", "", (), (Test("1", "1"), Test("2", "2"), Test("3", "3")))
    found = judgement(problem, "x", summarize([OK, WRONG], 3, early_stop=True), 2)
    assert (found.detail, found.total, found.problem_hash) == ("test 2: token 1", 3, problem.hash)
    assert found.failed_test == 2
    long = Grade(Verdict.RUNTIME_ERROR, "x" * 5000 + "the end")
    found = judgement(problem, "x", summarize([long], 3, early_stop=True), 0)
    assert len(found.detail) == MAX_DETAIL_CHARS + 1
    assert found.detail.endswith("the end")
