"""Answers that are integers: which are read, and that what judges them is an environment."""

import inspect
from dataclasses import replace
from types import SimpleNamespace

import pytest

from envs.environment import Environment, Submission
from envs.judge.judge import Judge
from envs.problem import Problem, Test, Verdict
from envs.tasks.sums import FirstInteger
from tests.growth import growth, repeated

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


def test_a_problem_with_more_than_one_answer_is_refused():
    with pytest.raises(ValueError, match="problem p"):
        FirstInteger().judge([Submission(replace(SUM, tests=()), "42")])


@pytest.mark.parametrize("unit", ["-", "-1", "1", "x", " ", "0"])
def test_a_long_response_costs_in_proportion_to_its_length(unit):
    for end in ("", "x"):
        assert growth(judged, repeated(unit, end=end), 1_000_000) < 3


@pytest.mark.parametrize("kind", [Judge, FirstInteger])
def test_every_environment_has_the_doors_signature(kind):
    parameters = list(inspect.signature(kind.judge).parameters)
    assert parameters == list(inspect.signature(Environment.judge).parameters)
    sandbox = SimpleNamespace(platform="none")
    environment = kind(sandbox) if kind is Judge else kind()
    assert set(Environment.__annotations__) <= set(vars(environment))
