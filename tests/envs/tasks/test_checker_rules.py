"""The written rules that tell which checker a problem needs, and how answers are compared."""

from collections import Counter

import pytest

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

FREE = [
    "If there are multiple answers, print any of them.",
    "If there are several solutions,\noutput any.",
    "Help Iahub, find any suitable array.",
    "If there are multiple solutions, you may find any one.",
    "The example is the shortest, but any sequence of length at most 20000 will be accepted.",
    "Note that there are other possible answers.",
    "You do not have to minimize the number of increments.",
    "You can print the pairs in any order.",
    "This is an interactive problem.",
    "After each query flush the output.",
    "Print one of them.",
    "On the second line, print a valid edge coloring.",
    "If there are several ways to do it, choose any of them.",
    "Your solution is correct if the value of p satisfies |p| <= 1.5 * 10^6.",
    "In the first line print k, the number of cycles in your solution.",
]

# only where the output is more than a number or a word
FREE_CONSTRUCTIONS = [
    "Note that the answer is not unique.",
    "The second picture also shows one possible distribution of colors.",
    "This is one of the possible answers.",
    "The order of the edges and of the vertices within the edges does not matter.",
    "Note that there may be several valid answers.",
    *(
        f"\n\nOutput\n\n{section}\n\nExamples\n\nInput\n"
        for section in (
            "Print -1 if there are none.\n\nIf there are two sets, print their descriptions.",
            "If an input array exists, print YES, followed by the input array in the next line.",
            "In case your answer is Yes, print n integers, the color of\n"
            "the tile for every square, and then a permutation.",
            "If such a graph exists, print YES. In the next m lines print the edges.",
        )
    ),
]

BOUND = [
    "Print the sum of the numbers.",
    "You may apply the operations any number of times, in any order. Print the least cost.",
    "The edges are given in any order.",
    "Print the number of ways to take the cards in any order.",
    "He escapes only if he is able to find any path. Print Yes or No.",
    "If there are several such strings, print the lexicographically smallest one.",
    "Do not print any extra spaces.",
    "In any case, the game ends.",
    "In one operation you can choose any two numbers and swap them.",
    "If there are multiple ways, find one which minimizes the sum. Print the sum.",
    "Your answer will be considered correct if its absolute or relative error is at most 10^{-6}.",
    "Your answer is correct if it matches the jury's.",
    "Print one of the words Yes or No.",
    "\n\nOutput\n\nIf one exists, print the lexicographically smallest permutation.\n\nExample\n",
    "\n\nOutput\n\nIf it is possible, print YES and the original array; it is unique.\n\nExample\n",
    "\n\nOutput\n\nPrint n integers: the i-th is the least cost, -1 if there is none.\n\nExample\n",
]

ANY_CASE = [
    "You can print each letter in any case (upper or lower).",
    'You can output "YES" and "NO" in any case.',
    "You may print each character in either uppercase or lowercase.",
    "You can print each letter in lowercase or uppercase.",
    "The output is case insensitive.",
    "You can choose the case (lower or upper) for each letter arbitrary.",
]

ITS_CASE = ["Print Yes or No.", "In any case, the final score is 2. Print Yes."]


@pytest.mark.parametrize("statement", FREE)
def test_free(statement):
    assert why_needs_checker(f"Given n. {statement} Good luck.", ONE)


@pytest.mark.parametrize("statement", FREE_CONSTRUCTIONS)
def test_a_construction_is_free_and_its_existence_is_not(statement):
    statement = f"Say Yes or No. {statement} Good luck."
    for construction in ("Yes 2\n", "-1\n5 6\n", "bbw\n", "0110\n", "Yes\nabc\n"):
        tests = (Test("1\n", construction),)
        assert why_needs_checker(statement, tests) == "several constructions"
    for answer in ("Yes\n", "NO\n12\n", "-1\n", "2.50\n", "w\n"):
        assert why_needs_checker(statement, (Test("1\n", answer),)) is None


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


CHECKERS = [
    ("Print the area.", "0.50", "floats"),
    ("Print the area.", "5", "tokens"),
    ("Print the area. Absolute error of the answer up to 1e-9.", "0.500000000", "floats 1e-09 0.0"),
    ("Print the area. Absolute error of the answer up to 1e-6.", "5", "floats 1e-06 0.0"),
    ("Print the area. Relative error of the answer up to 1e-6.", "YES", "tokens"),
    # expected values that are printed with five decimals can be off by half a unit of the last one
    ("Print the area. Relative error of the answer up to 1e-9.", "0.33333", "floats 5e-06 1e-09"),
    ("Print the area. Absolute error of the answer up to 1e-9.", "0.5", "floats 1e-09 0.0"),
    ("Print the area. Absolute error of the answer up to 1e-9.", "0.75", "floats 1e-09 0.0"),
    ("Print the area. Absolute error of the answer up to 1e-9.", "0.50", "floats 0.005 0.0"),
    ("Print the area rounded to 2 decimal places.", "0.50", "rounded"),
    ("Print the area rounded to 2 decimal places.", "0.333", "floats"),
    (
        "Print the area rounded to 2 decimal places, error of the answer 1e-2.",
        "0.50",
        "floats 0.01 0.01",
    ),
    ("Print the code.", "00101", "text"),
    ("Print the code.", "101 x07", "tokens"),
    ("Print the code.", "0 10 -0", "tokens"),
    ("Print the code as a string of length 3.", "101", "text"),
    ("Print the code as a string of length 3.", "abc", "tokens"),
    ("Print the code, letters in any case.", "YES 01", "text case=any"),
]


@pytest.mark.parametrize(("statement", "output", "checker"), CHECKERS)
def test_the_checker_follows_statement_and_outputs(statement, output, checker):
    found = checker_for(statement, (Test("1\n", f"{output}\n"),), None)
    assert found.replace("absolute=", "").replace("relative=", "") == checker


EITHER, ABSOLUTE, RELATIVE = (
    (lambda t: Tolerance(t, t)),
    (lambda t: Tolerance(t, 0.0)),
    (lambda t: Tolerance(0.0, t)),
)

TOLERANCES = [
    # as the rows have it: superscripts lost, spaced or in braces
    ("correct if its relative or absolute error doesn't exceed 10 - 6.", EITHER(1e-6)),
    ("if its relative or absolute error doesn't exceed 10^{ - 9}.", EITHER(1e-9)),
    ("correct if its absolute or relative error does not exceed $10^{−6}$.", EITHER(1e-6)),
    ("correct if it will have absolute error not more then 10^{-6}.", ABSOLUTE(1e-6)),
    ("valid if the answer differs from the correct one by at most 10 - 9.", ABSOLUTE(1e-9)),
    ("should not differ by more than 0.01 in absolute value from the correct.", ABSOLUTE(0.01)),
    ("Svaret ska (d.v.s. vara inom $5 \\cdot 10^{-4}$ från rätt svar).", ABSOLUTE(5e-4)),
    ("Svaret får ha ett absolut eller relativt fel på högst $10^{-5}$.", EITHER(1e-5)),
    # a larger one for a subtask
    ("Answer's absolute error: 1e-6.\n\nSubtask 3: absolute error of 1e-2.", ABSOLUTE(1e-6)),
    # other spellings
    ("The relative error of your output must be less than 1e-9.", RELATIVE(1e-9)),
    ("Answers within an absolute or relative error of 10⁻⁶ are accepted.", EITHER(1e-6)),
    ("An absolute error of at most 10^(-6) is fine for the answer.", ABSOLUTE(1e-6)),
    ("Print the answer with an accuracy of 0.00001.", EITHER(1e-5)),
    ("Print the answer with precision 10**-4.", EITHER(1e-4)),
    ("Any answer within 1e-5 of the\ncorrect value is accepted.", ABSOLUTE(1e-5)),
    ("Your answer may have error up to $$$10^{-4}$$$.", EITHER(1e-4)),
    ("correct if |a - b| / \\max(1, |b|) \\le 10^{-4}, where b is the jury's.", EITHER(1e-4)),
    ("must be correct up to 10<sup>-6</sup>.", ABSOLUTE(1e-6)),
]
NO_TOLERANCES = [
    "Print the sum modulo 10^9 + 7.",
    "He is not hit if the distance remains greater than $10^{-6}$ at all times.",
    "The real numbers are given with precision 10^{-3}. Print the answer.",
    "It is guaranteed that the answer does not change if the radius differs by 10^{-6}.",
    "The answer differs from the sum by 10 - 3 = 7 coins.",
    "Print Error if two values differ.",
    "Print the answer with at least 6 digits after the decimal point.",
    "1 ≤ n ≤ 10^5, and the probabilities differ by at least 0.01.",
]
STATEMENTS = [
    (rounded_decimals, "the expected value, rounded to two digits after the decimal point.", 2),
    (rounded_decimals, "Print the answer rounded to 3 decimal places.", 3),
    (rounded_decimals, "Output the value with exactly 4 digits after the decimal point.", 4),
    (rounded_decimals, "Print the number of rounds.", None),
    (rounded_decimals, "Each of x and y is given with exactly one digit after the point.", None),
    (rounded_decimals, "Print the answer, rounded down to an integer.", None),
    (rounded_decimals, "Do not round the answer to 2 decimal places.", None),
    (rounded_decimals, "This is the 2 digits round. Print the decimal part.", None),
    (asks_for_digits, "output it in binary representation without extra leading zeros.", True),
    (asks_for_digits, "For each test case print a string of length n.", True),
    (asks_for_digits, "Print a 4-digit number.", True),
    (asks_for_digits, "The answer must have n bits: print exactly n bits.", True),
    (asks_for_digits, "Print the number of digits.", False),
    (
        asks_for_digits,
        "It displays integers of N digits without leading zeros. Print a sum.",
        False,
    ),
    (asks_for_digits, "The input has a binary string of length n. Print the answer.", False),
]


@pytest.mark.parametrize(("statement", "tolerance"), TOLERANCES)
def test_a_tolerance_is_read(statement, tolerance):
    assert stated_tolerance(f"Find the area.\n\n{statement}\n\nExamples\n10 - 5") == tolerance


@pytest.mark.parametrize("statement", NO_TOLERANCES)
def test_what_is_no_tolerance_is_not(statement):
    assert stated_tolerance(f"Find the area.\n\n{statement}\n\nExamples\n0.5") is None


@pytest.mark.parametrize(("rule", "statement", "found"), STATEMENTS)
def test_rounding_and_strings_of_digits_are_read(rule, statement, found):
    assert rule(f"Find the area. {statement} Good luck.") == found


def test_decimals_of_expected_outputs():
    assert printed_decimals(["1.25 2.50\n", "YES 3\n"]) == 2 and printed_decimals(["0.3333"]) == 4
    for whole in (["1.25", "2.5"], ["1", "..."], ["1.25 2.75"], ["3.0 4.5"], ["3.0"]):
        assert printed_decimals(whole) is None
    assert most_decimals(["1.25 2.5\n", "YES 3\n"]) == 2 and most_decimals(["1 ..."]) == 0


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "many answers ",
            "print ",
            "any ",
            "find ",
            "if there are ",
            "order ",
            "output\n",
            "the a ",
        ),
        *("the answer error 10 - ", "10^-", "0.", "{", "|a - b| ", "rounded 2 ", "either upper "),
    ],
)
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
