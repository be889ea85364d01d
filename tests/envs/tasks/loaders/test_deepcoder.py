"""DeepCoder's four configurations, whose tests are nested differently."""

import json

import pytest

from envs.problem import Test
from envs.tasks.loaders.taco import deepcoder as problem
from envs.tasks.parsers import SkipRow
from tests.envs.tasks.contest_rows import (
    ADD,
    ADD_FUNCTION,
    STARTER,
    deepcoder_lcb,
    deepcoder_primeintellect,
    deepcoder_taco,
)


@pytest.mark.parametrize("row", [deepcoder_taco(), deepcoder_primeintellect(), deepcoder_lcb()])
def test_every_configuration_gives_the_same_stdin_tests(row):
    made = problem(row, "deepcoder/00001")
    assert made.tests[:2] == (Test("1 2\n", "3\n"), Test("5 7\n", "12\n")) and len(made.tests) == 4
    assert (made.fn_name, made.checker, made.samples) == (None, "tokens", ())


@pytest.mark.parametrize(
    "row", [deepcoder_primeintellect(function=True), deepcoder_lcb(function=True)]
)
def test_function_tests_have_the_same_arguments_and_results(row):
    made = problem(row, "deepcoder/00001")
    assert made.tests[:2] == (Test("[1, 2]", "3"), Test("[5, 7]", "12"))
    assert (made.fn_name, made.checker) == ("add", "call")


def test_programs_lose_their_fences():
    assert problem(deepcoder_taco(), "p").solutions == (ADD,)
    assert problem(deepcoder_primeintellect(), "p").solutions == (ADD,)
    fenced = deepcoder_primeintellect(function=True)
    assert problem(fenced, "p").solutions == (ADD_FUNCTION,)


def test_already_parsed_tests_and_metadata_as_text():
    row = deepcoder_lcb(function=True)
    parsed = row | {"tests": json.loads(row["tests"]), "metadata": '{"func_name": "add"}'}
    assert problem(parsed, "p") == problem(row, "p")
    by_starter_code = problem(row | {"metadata": None, "starter_code": STARTER}, "p")
    assert by_starter_code.fn_name == "add"


STDIN = {"input": "1", "output": "1"}
CALL = STDIN | {"testtype": "functional"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"problem": None}, "problem is not a text"),
        ({"tests": None}, "tests are not a list of objects"),
        ({"tests": ""}, "tests is empty"),
        ({"tests": "[1, "}, "tests is not JSON"),
        ({"tests": "[]"}, "no tests"),
        ({"tests": '["1"]'}, "tests are not a list of objects"),
        ({"tests": "{}"}, "inputs and outputs are not lists"),
        ({"tests": [STDIN | {"output": None}]}, "a test without an input or an output"),
        ({"tests": [STDIN, CALL]}, "some tests call a function and others do not"),
        ({"tests": [CALL]}, "the tests call a function without a name"),
        (
            {"tests": [CALL | {"fn_name": "f"}, CALL | {"fn_name": "g"}]},
            "the tests call more than one function",
        ),
        ({"solutions": "[broken"}, "solutions is not JSON"),
    ],
)
def test_rows_that_cannot_be_judged_say_why(changed, reason):
    with pytest.raises(SkipRow, match=f"^{reason}$"):
        problem(deepcoder_taco(**changed), "p")
