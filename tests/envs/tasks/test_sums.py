"""Sums: problems, and the environment that reads integers."""

import re
from dataclasses import replace

import pytest

from envs.problem import Problem, Submission, Test, Verdict
from envs.tasks import open_task
from envs.tasks.sums import FirstInteger, load
from envs.tasks.task import task_config


def test_the_answers_are_right_and_no_two_splits_share_a_problem():
    splits = {split: load(split, 10**6) for split in ("train", "tune", "choose", "test")}
    problems = [problem for split in splits.values() for problem in split]
    assert len({problem.statement for problem in problems}) == len(problems) == 50 * 50
    environment = FirstInteger()
    for problem in problems:
        a, b = map(int, re.findall(r"\d+", problem.statement))
        assert problem.solutions == (str(a + b),)
        responses = (*problem.solutions, *problem.incorrect_solutions)
        asked = [Submission(problem, response) for response in responses]
        assert [found.passed for found in environment.judge(asked)] == [1] + [0] * (len(asked) - 1)


def test_the_task_is_the_same_every_time_and_as_large_as_asked_for():
    one, same = (open_task(task_config(["task=sums"])) for _ in range(2))
    assert one == same and len(one.train) == 60 and len(one.test) == 30
    assert one.prompt(one.train[0]).startswith("What is ")
    few = open_task(task_config(["task=sums", "task.train_problems=7"]))
    assert few.train == one.train[:7] and few.data_hash != one.data_hash


SUM = Problem("p", "What is 17 + 25?", (), (Test("", "42"),))


def judged(response, answer="42"):
    (found,) = FirstInteger().judge([Submission(replace(SUM, tests=(Test("", answer),)), response)])
    return found


@pytest.mark.parametrize(
    ("response", "answer", "verdict"),
    [
        ("42", "42", Verdict.ACCEPTED),
        ("It is 042.", "42", Verdict.ACCEPTED),
        ("42 or 43", "42", Verdict.ACCEPTED),
        ("17 + 25 = 42", "42", Verdict.WRONG_ANSWER),
        ("-42", "42", Verdict.WRONG_ANSWER),
        ("-7", "-7\n", Verdict.ACCEPTED),
        ("-0", "0", Verdict.ACCEPTED),
        ("forty-two", "42", Verdict.SYNTAX_ERROR),
        ("", "42", Verdict.SYNTAX_ERROR),
        ("٤٢", "42", Verdict.SYNTAX_ERROR),
        ("9" * 6000, "9" * 6000, Verdict.ACCEPTED),
    ],
)
def test_the_first_integer_counts(response, answer, verdict):
    found = judged(response, answer)
    assert found.verdict is verdict
    assert (found.passed, found.total) == (verdict is Verdict.ACCEPTED, 1)
    assert bool(found.program) == (verdict is not Verdict.SYNTAX_ERROR)
    assert found.problem_hash and found.judge_version


def test_what_was_done_is_counted():
    environment = FirstInteger()
    environment.judge([Submission(SUM, text) for text in ("42", "41", "none")])
    stats = environment.stats
    assert (stats.submissions, stats.programs_judged, stats.without_program) == (3, 2, 1)
