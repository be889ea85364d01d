"""Which tests stand in a statement, and which tests cheap programs pass, computed and run."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import Problem, Test
from envs.sandbox import SandboxConfig, open_sandbox
from envs.tasks.strength import (
    CHEAP_PROGRAMS,
    MAX_GAP_CHARS,
    cheap_programs,
    measure_strength,
    passed_counts,
    shown_tests,
)

DATA = yaml.safe_load((Path(__file__).parent / "data" / "strength.yaml").read_text("utf-8"))
FAR = f"For 2 3 4, {'and so on, ' * MAX_GAP_CHARS} print 7 1."


def problem(statement, *tests, samples=(), **fields):
    pairs = tuple(Test(*test) for test in tests)
    return Problem("p", statement, tuple(Test(*sample) for sample in samples), pairs, **fields)


@pytest.mark.parametrize(("statement", "shown"), [*DATA["shown"], (FAR, False)])
def test_a_test_is_shown_if_its_output_follows_its_input(statement, shown):
    assert len(shown_tests(problem(statement, ("2\n3 4\n", "7\n1\n")))) == shown


@pytest.mark.parametrize(("statement", "shown"), DATA["shown calls"])
def test_a_call_is_shown_in_any_of_the_usual_spellings(statement, shown):
    one = problem(statement, ('[[1, 2], "ab"]', "true"), fn_name="f", checker="call")
    assert len(shown_tests(one)) == shown


def test_samples_are_shown_wherever_they_stand():
    tests = [("1\n", "2\n"), ("5\n", "6\n"), ("7", "8")]
    one = problem("Print n + 1.", *tests, samples=[("1", "2"), ("9", "10")])
    strength = measure_strength(one)
    assert (strength.tests, strength.hidden, strength.distinct_outputs) == (3, 2, 3)


@pytest.mark.parametrize(
    ("tests", "weakness"),
    [
        ([("1", "a"), ("2", "b")], None),
        ([("1", "a"), ("2", "a ")], "one output for all tests"),
        ([("1", "a")], "fewer than task.min_hidden_tests=2 hidden tests"),
        ([("8", "9"), ("1", "b")], "fewer than task.min_hidden_tests=2 hidden tests"),
    ],
)
def test_the_reason_for_leaving_a_problem_out(tests, weakness):
    assert measure_strength(problem("For 8 print 9.", *tests)).weakness(2) == weakness


def test_outputs_that_the_checker_does_not_tell_apart_are_one():
    tests = [("1", "yes"), ("2", "Yes")]
    assert measure_strength(problem("", *tests)).weakness(2) is None
    either_case = problem("", *tests, checker="case_insensitive")
    assert measure_strength(either_case).weakness(2) == "one output for all tests"


@pytest.mark.parametrize(
    ("statement", "test"),
    [
        ("1 " * 100_000, ("1", "2")),
        ("1" * 200_000, ("1", "1")),
        ("a b " * 50_000, ("a b " * 20_000 + "c", "d")),
        ("[[" * 50_000, ("[[[1]]]", "1")),
        ("1 2 " * 50_000, ("1\n2\n", "1 2 " * 40_000 + "3")),
    ],
)
@pytest.mark.parametrize("fn_name", [None, "f"])
def test_hostile_statements_take_linear_time(statement, test, fn_name):
    one = problem(statement, test, fn_name=fn_name, checker="call" if fn_name else "tokens")
    begin = time.process_time()
    shown_tests(one)
    assert time.process_time() - begin < 1


# Cheap programs.


EARNED = {name: set(case.pop("earned")) for name, case in DATA["cheap"].items()}
CASES = {
    name: problem(case.pop("statement", ""), *case.pop("tests"), **case)
    for name, case in DATA["cheap"].items()
}


@pytest.fixture(scope="module")
def judge():
    with open_sandbox(SandboxConfig(kind="embedded")) as sandbox:
        yield Judge(sandbox, JudgeConfig(early_stop=False))


def run(judge, problems):
    """Return the tests that each program passes, as `passed_counts` does."""
    submissions, places = [], []
    counts = [[None] * len(CHEAP_PROGRAMS) for _ in problems]
    for row, one in enumerate(problems):
        for program in cheap_programs(one, shown_tests(one)):
            places.append((row, CHEAP_PROGRAMS.index(program.name)))
            submissions.append(Submission(one, as_response(program.source)))
    for (row, column), judgement in zip(places, judge.judge(submissions), strict=True):
        counts[row][column] = judgement.passed
    return counts


@pytest.mark.parametrize("name", CASES)
def test_what_they_earn(name):
    one = CASES[name]
    counts = passed_counts(one, shown_tests(one))
    earned = {n for n, c in zip(CHEAP_PROGRAMS, counts, strict=True) if c == len(one.tests)}
    assert earned == EARNED[name]


def test_they_pass_the_same_tests_when_they_are_run(judge):
    problems = list(CASES.values())
    assert run(judge, problems) == [passed_counts(one, shown_tests(one)) for one in problems]


def test_a_table_too_long_for_a_program_earns_nothing():
    tests = tuple(Test(f"{i}\n", "x" * 300_000 + str(i)) for i in range(2))
    one = replace(CASES["echo"], tests=tests)
    assert passed_counts(one, tests)[0] == 0
