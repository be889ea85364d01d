"""The written rules that tell which checker a problem needs, and how answers are compared.

`data/statements.yaml` holds the statements, and what is found in each.
"""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from envs.problem import Test
from envs.tasks.checker_rules import (
    Tolerance,
    asks_for_digits,
    checker_for,
    comparing_checker,
    most_decimals,
    printed_decimals,
    rounded_decimals,
    stated_tolerance,
    why_needs_checker,
)
from tests.envs.tasks.dataset_rows import DATA, load_problems, needs_data
from tests.growth import growth, repeated

ONE = (Test("1\n", "Yes 2\n"),)
STATEMENTS = yaml.safe_load((Path(__file__).parent / "data" / "statements.yaml").read_text("utf-8"))
FREE_SECTIONS = [
    f"\n\nOutput\n\n{section}\n\nExamples\n\nInput\n"
    for section in STATEMENTS["free output sections"]
]
BOUND_SECTIONS = [
    f"\n\nOutput\n\n{section}\n\nExample\n" for section in STATEMENTS["bound output sections"]
]


@pytest.mark.parametrize("statement", STATEMENTS["free"])
def test_free(statement):
    assert why_needs_checker(f"Given n. {statement} Good luck.", ONE)


@pytest.mark.parametrize("statement", STATEMENTS["free constructions"] + FREE_SECTIONS)
def test_a_construction_is_free_and_its_existence_is_not(statement):
    statement = f"Say Yes or No. {statement} Good luck."
    for construction in ("Yes 2\n", "-1\n5 6\n", "bbw\n", "0110\n", "Yes\nabc\n"):
        tests = (Test("1\n", construction),)
        assert why_needs_checker(statement, tests) == "several constructions"
    for answer in ("Yes\n", "NO\n12\n", "-1\n", "2.50\n", "w\n"):
        assert why_needs_checker(statement, (Test("1\n", answer),)) is None


@pytest.mark.parametrize("statement", STATEMENTS["bound"] + BOUND_SECTIONS)
def test_bound(statement):
    assert why_needs_checker(f"Given n. {statement} Good luck.", ONE) is None


@pytest.mark.parametrize("statement", STATEMENTS["any case"])
def test_any_case(statement):
    assert comparing_checker(f"Given n. {statement} Good luck.", ONE) == "case_insensitive"
    assert comparing_checker(statement, (Test("1", "2\n"),)) == "tokens"
    assert comparing_checker(statement, (Test("1", "Yes 0.5\n"),)) == "floats"


@pytest.mark.parametrize("statement", STATEMENTS["its case"])
def test_its_case(statement):
    assert comparing_checker(f"Given n. {statement} Good luck.", ONE) == "tokens"


def test_two_outputs_for_one_input_prove_freedom():
    tests = (Test("1\n", "1 2\n"), Test("1\n", "2 1\n"))
    assert why_needs_checker("", tests) == "two outputs for one input"
    assert why_needs_checker("", (Test("1\n", "1 2\n"), Test("1\n", "1\n2\n"))) is None


@pytest.mark.parametrize(("statement", "output", "checker"), STATEMENTS["checkers"])
def test_the_checker_follows_statement_and_outputs(statement, output, checker):
    found = checker_for(statement, (Test("1\n", f"{output}\n"),), None)
    assert found.replace("absolute=", "").replace("relative=", "") == checker


@pytest.mark.parametrize(("statement", "absolute", "relative"), STATEMENTS["tolerances"])
def test_a_tolerance_is_read(statement, absolute, relative):
    found = stated_tolerance(f"Find the area.\n\n{statement}\n\nExamples\n10 - 5")
    assert found == Tolerance(absolute, relative)


@pytest.mark.parametrize("statement", STATEMENTS["no tolerances"])
def test_what_is_no_tolerance_is_not(statement):
    assert stated_tolerance(f"Find the area.\n\n{statement}\n\nExamples\n0.5") is None


@pytest.mark.parametrize("rule", [rounded_decimals, asks_for_digits])
def test_rounding_and_strings_of_digits_are_read(rule):
    for statement, found in STATEMENTS[rule.__name__.replace("_", " ")]:
        assert rule(f"Find the area. {statement} Good luck.") == found, statement


def test_decimals_of_expected_outputs():
    assert printed_decimals(["1.25 2.50\n", "YES 3\n"]) == 2 and printed_decimals(["0.3333"]) == 4
    for whole in (["1.25", "2.5"], ["1", "..."], ["1.25 2.75"], ["3.0 4.5"], ["3.0"]):
        assert printed_decimals(whole) is None
    assert most_decimals(["1.25 2.5\n", "YES 3\n"]) == 2 and most_decimals(["1 ..."]) == 0


@pytest.mark.parametrize("unit", STATEMENTS["repeated"])
def test_a_statement_costs_in_proportion_to_its_length(unit):
    def act(statement):
        checker_for(statement, (Test("1\n", "1 2\n"),), None)

    assert growth(act, repeated(unit, start="\nOutput\n"), 60_000) < 3


@needs_data
def test_of_the_rows_with_one_answer_no_more_are_marked():
    """27 of these 400 statements say that any answer will do, and 00343 asks for a painting."""
    marked = {}
    for task, name in (("taco", "taco_stdin"), ("taco", "taco_special_judge")):
        problems, _ = load_problems(task, DATA / f"{name}.jsonl")
        marked[name] = Counter(problem.checker.split()[0] for problem in problems)
    assert marked["taco_stdin"]["needs_checker"] == 28
    assert marked["taco_special_judge"]["needs_checker"] == 42
