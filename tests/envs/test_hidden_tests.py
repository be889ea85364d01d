"""Which tests stand in a statement: usual spellings, real rows, hostile text."""

import os
import time
from pathlib import Path

import pytest

from envs.problem import Problem, Test
from envs.tasks.rows import load_problems
from envs.tasks.strength import MAX_GAP_CHARS, measure_strength, shown_tests
from tests.envs.tasks.dataset_rows import converter_of

DATA = Path(os.environ.get("SPO_BENCH_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data rows in {DATA}")


def problem(statement, *tests, samples=(), **fields):
    pairs = tuple(Test(*test) for test in tests)
    return Problem("p", statement, tuple(Test(*sample) for sample in samples), pairs, **fields)


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("Add.\n\n-----Sample Input-----\n2\n3 4\n\n-----Sample Output-----\n7 1\n", True),
        ("Add.\nInput:\n\n2\n3   4\n\nOutput:\n\n7\n1", True),
        ("Add. For `2 3 4` print `7 1`.", True),
        ("Add. For 2 3 4 print 71.", False),
        ("Add. For 2 3 45 print 7 1.", False),
        ("Add. For 12 3 4 print 7 1.", False),
        ("Print 7 1 first; then comes 2 3 4.", False),
        (f"For 2 3 4, {'and so on, ' * MAX_GAP_CHARS} print 7 1.", False),
        ("2 3 4 is one input. 2 3 4 gives 7 1.", True),
        ("", False),
    ],
)
def test_a_test_is_shown_if_its_output_follows_its_input(statement, shown):
    assert len(shown_tests(problem(statement, ("2\n3 4\n", "7\n1\n")))) == shown


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        (">>> f([1, 2], 'ab')\nTrue", True),
        ('Input: xs = [1,2], s = "AB"\nOutput: true', True),
        ("f((1, 2), 'ab') == True", True),
        ("f([1, 2, 3], 'ab') == True", False),
        ("f([1, 2], 'ab') == False", False),
    ],
)
def test_a_call_is_shown_in_any_of_the_usual_spellings(statement, shown):
    one = problem(statement, ('[[1, 2], "ab"]', "true"), fn_name="f", checker="call")
    assert len(shown_tests(one)) == shown


def test_samples_are_shown_wherever_they_stand():
    tests = [("1\n", "2\n"), ("5\n", "6\n"), ("7", "8")]
    one = problem("Print n + 1.", *tests, samples=[("1", "2"), ("9", "10")])
    strength = measure_strength(one)
    assert (strength.tests, strength.hidden, strength.distinct_outputs) == (3, 2, 3)


def test_a_test_without_input_or_output_stands_nowhere_by_itself():
    assert shown_tests(problem("Print nothing.", ("", ""))) == []
    assert shown_tests(problem("Print 5.", ("", "5\n"))) == [Test("", "5\n")]


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


@needs_data
@pytest.mark.parametrize(
    ("task", "name", "tests", "hidden"),
    [
        # its tests are the samples; two of them differ from the statement's text
        pytest.param("taco", "taco_stdin", 661, 2, marks=pytest.mark.slow),
        ("taco", "taco_special_judge", 104, 0),
        ("code_contests", "code_contests_olympiad", 520, 462),
        ("apps", "apps_stdin_with_wrong", 269, 212),
    ],
)
def test_samples_of_real_statements_are_found(task, name, tests, hidden):
    problems, _ = load_problems(converter_of(task), DATA / f"{name}.jsonl")
    strengths = [measure_strength(one) for one in problems]
    assert sum(one.tests for one in strengths) == tests
    assert sum(one.hidden for one in strengths) == hidden
