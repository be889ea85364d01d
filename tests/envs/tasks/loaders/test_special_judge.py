"""The written rules that tell which checker a problem needs."""

import pytest

from envs.problem import Test
from envs.tasks.loaders.special_judge import comparing_checker, why_needs_checker

ONE = (Test("1\n", "Yes 2\n"),)

FREE = [
    "If there are multiple answers, print any of them.",
    "If there are several solutions,\noutput any.",
    "In case multiple answers exist, you can output any one them.",
    "Find any shortest string with this property.",
    "Help Iahub, find any suitable array.",
    "If there are multiple solutions, you may find any one.",
    "There are many lists, printing any one of them will do.",
    "The example is the shortest, but any sequence of length at most 20000 will be accepted.",
    "Note that there are other possible answers.",
    "You do not have to minimize the number of increments.",
    "You can print the pairs in any order.",
    "Output the elements of array A in any order.",
    "This is an interactive problem.",
    "After each query flush the output.",
]

BOUND = [
    "Print the sum of the numbers.",
    "You may apply the operations any number of times, in any order. Print the least cost.",
    "The edges are given in any order.",
    "Print the number of ways to take the cards in any order.",
    "He escapes only if he is able to find any path. Print Yes or No.",
    "If there are several such strings, print the lexicographically smallest one.",
    "Do not print any extra spaces.",
    "Build an interactive quiz.",
    "Choose any two cells and swap them.",
    "In any case, the game ends.",
]

ANY_CASE = [
    "You can print each letter in any case (upper or lower).",
    'You can output "YES" and "NO" in any case.',
    "You may print every letter in any register.",
    "You may print each character in either uppercase or lowercase.",
    "You can print each letter in lowercase or uppercase.",
    "The output is case insensitive.",
]

ITS_CASE = [
    "Print Yes or No.",
    "In any case, the final score is 2. Print Yes.",
    "The input holds lowercase or uppercase letters. Print Yes.",
]


@pytest.mark.parametrize("statement", FREE)
def test_free(statement):
    assert why_needs_checker(f"Given n. {statement} Good luck.", ONE)


@pytest.mark.parametrize("statement", BOUND)
def test_bound(statement):
    assert why_needs_checker(f"Given n. {statement} Good luck.", ONE) is None


@pytest.mark.parametrize("statement", ANY_CASE)
def test_any_case(statement):
    assert comparing_checker(f"Given n. {statement} Good luck.", ONE) == "case_insensitive"
    assert comparing_checker(statement, (Test("1", "2\n"),)) == "tokens"
    assert comparing_checker(statement, (Test("1", "Yes 0.5\n"),)) == "floats"


@pytest.mark.parametrize("statement", ITS_CASE)
def test_its_case(statement):
    assert comparing_checker(f"Given n. {statement} Good luck.", ONE) == "tokens"


def test_two_outputs_for_one_input_prove_freedom():
    tests = (Test("1\n", "1 2\n"), Test("1\n", "2 1\n"))
    assert why_needs_checker("", tests) == "two outputs for one input"
    assert why_needs_checker("", (Test("1\n", "1 2\n"), Test("1\n", "1\n2\n"))) is None
