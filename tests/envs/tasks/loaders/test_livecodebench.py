"""LiveCodeBench rows: public and private tests, functions and programs."""

import json

import pytest

from envs.problem import Test
from envs.tasks.loaders.livecodebench import problem
from envs.tasks.parsers import SkipRow
from tests.envs.tasks.contest_rows import STARTER, STDIN, livecodebench


def test_a_program():
    made = problem(livecodebench(3), "livecodebench/00007")
    assert made.name == "livecodebench/abc3_a"
    assert made.samples == (Test("1 2\n", "3\n"),)
    assert made.tests[0] == made.samples[0] and len(made.tests) == 4
    assert (made.fn_name, made.checker) == (None, "tokens")
    assert (made.date, made.difficulty, made.source) == ("2024-04-15", "easy", "atcoder")


def test_a_function():
    made = problem(livecodebench(function=True), "p")
    assert (made.fn_name, made.checker, made.starter_code) == ("add", "call", STARTER)
    assert made.tests[1] == Test("[5, 7]", "12") and made.samples == (Test("[1, 2]", "3"),)


def test_private_tests_as_plain_json_are_the_same():
    plain = json.dumps([test | {"testtype": "stdin"} for test in STDIN[1:]])
    assert problem(livecodebench(private=plain), "p") == problem(livecodebench(), "p")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"question_content": None}, "question_content is not a text"),
        ({"private_test_cases": None}, "no private tests"),
        ({"private_test_cases": "[]"}, "no private tests"),
        ({"private_test_cases": '{"a": 1}'}, "tests are not a list of objects"),
        ({"private_test_cases": "%%%"}, "private_test_cases are neither JSON nor base64 of zlib"),
        ({"public_test_cases": "[{"}, "public_test_cases is not JSON"),
        ({"metadata": "{"}, "metadata is not JSON"),
    ],
)
def test_rows_that_cannot_be_judged_say_why(changed, reason):
    row = livecodebench(function="metadata" in changed) | changed
    with pytest.raises(SkipRow, match=f"^{reason}$"):
        problem(row, "p")
