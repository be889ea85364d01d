"""What statements say about tolerance, rounding, digits and case, and what only looks like it."""

import pytest

from envs.tasks.checker_rules import (
    Tolerance,
    allows_any_case,
    asks_for_digits,
    most_decimals,
    printed_decimals,
    rounded_decimals,
    stated_tolerance,
)
from tests.growth import growth, repeated

EITHER, ABSOLUTE, RELATIVE = (
    (lambda t: Tolerance(t, t)),
    (lambda t: Tolerance(t, 0.0)),
    (lambda t: Tolerance(0.0, t)),
)

TOLERANCES = [
    # as the rows have it: superscripts lost, spaced or in braces
    (
        "The answer is correct if its relative or absolute error doesn't exceed 10 - 6.",
        EITHER(1e-6),
    ),
    ("if its relative or absolute error doesn't exceed 10^{ - 9}.", EITHER(1e-9)),
    (
        "correct if its absolute or relative error does not exceed $10^{−6}$.",
        EITHER(1e-6),
    ),
    (
        "considered as correct if it will have absolute error not more then 10^{-6}.",
        ABSOLUTE(1e-6),
    ),
    ("correct if its absolute error does not exceed $10^{-3}$.", ABSOLUTE(1e-3)),
    (
        "The answer will be considered valid if it differs from the correct one by at most 10 - 9.",
        ABSOLUTE(1e-9),
    ),
    (
        "the sides should not differ by more than 0.01 in absolute value from the correct lengths.",
        ABSOLUTE(0.01),
    ),
    (
        "Svaret ska (d.v.s. vara inom $5 \\cdot 10^{-4}$ från rätt svar).",
        ABSOLUTE(5e-4),
    ),
    ("Svaret får ha ett absolut eller relativt fel på högst $10^{-5}$.", EITHER(1e-5)),
    # a larger one for a subtask
    (
        "The absolute error of the answer is at most 1e-6.\n\nSubtask 3:"
        " the absolute error of the answer is at most 1e-2.",
        ABSOLUTE(1e-6),
    ),
    # other spellings
    ("The relative error of your output must be less than 1e-9.", RELATIVE(1e-9)),
    ("Answers within an absolute or relative error of 10⁻⁶ are accepted.", EITHER(1e-6)),
    ("An absolute error of at most 10^(-6) is fine.", ABSOLUTE(1e-6)),
    ("Print the answer with an accuracy of 0.00001.", EITHER(1e-5)),
    ("Print the answer with precision 10**-4.", EITHER(1e-4)),
    ("The output must not contain an error greater than 10–8.", EITHER(1e-8)),
    ("Output is accepted with a tolerance of 1E-7.", EITHER(1e-7)),
    ("Any answer within 1e-5 of the\ncorrect value is accepted.", ABSOLUTE(1e-5)),
    ("Your answer may have error up to $$$10^{-4}$$$.", EITHER(1e-4)),
    (
        "correct if \\frac{|a - b|}{\\max(1, |b|)} \\le 10^{-4}, where b is the jury's.",
        EITHER(1e-4),
    ),
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
ROUNDED = [
    ("output the expected value, rounded to two digits after the decimal point.", 2),
    ("Print the answer rounded to 3 decimal places.", 3),
    ("Round your answer to 1 decimal place.", 1),
    ("Print the result rounded off to 2 decimals.", 2),
    ("Output the value with exactly 4 digits after the decimal point.", 4),
]
NOT_ROUNDED = [
    "Print the number of rounds.",
    "Each of x, y and z is given with exactly one digit after the decimal point.",
    "Print the answer, rounded down to an integer.",
    "Do not round the answer to 2 decimal places.",
    "Print the exact answer.",
    "This is the 2 digits round. Print the decimal part.",
]
DIGITS = [
    "output the value in binary representation without extra leading zeros.",
    "For each test case print a string of length n.",
    "Output a single string s of length m, where the i-th symbol is 0 or 1.",
    "Print a 4-digit number.",
    "The answer must have exactly n bits: print exactly n bits, with leading zeros.",
]
NOT_DIGITS = [
    "Print the number of digits.",
    "A screen displays two integers of N digits without leading zeros. Print their sum.",
    "The input has a binary string of length n. Print the answer.",
]


@pytest.mark.parametrize(("statement", "tolerance"), TOLERANCES)
def test_a_tolerance_is_read(statement, tolerance):
    assert stated_tolerance(f"Find the area.\n\n{statement}\n\nExamples\n10 - 5") == tolerance


@pytest.mark.parametrize("statement", NO_TOLERANCES)
def test_what_is_no_tolerance_is_not(statement):
    assert stated_tolerance(f"Find the area.\n\n{statement}\n\nExamples\n0.5") is None


@pytest.mark.parametrize(("statement", "decimals"), ROUNDED)
def test_rounding_is_read(statement, decimals):
    assert rounded_decimals(f"Find the area. {statement} Good luck.") == decimals


@pytest.mark.parametrize("statement", NOT_ROUNDED)
def test_what_is_no_rounding_is_not(statement):
    assert rounded_decimals(f"Find the area. {statement} Good luck.") is None


@pytest.mark.parametrize("statement", DIGITS)
def test_strings_of_digits_are_read(statement):
    assert asks_for_digits(f"Find x. {statement} Good luck.")


@pytest.mark.parametrize("statement", NOT_DIGITS)
def test_what_is_a_number_is_no_string_of_digits(statement):
    assert not asks_for_digits(f"Find x. {statement} Good luck.")


def test_decimals_of_expected_outputs():
    assert printed_decimals(["1.25 2.50\n", "YES 3\n"]) == 2 and printed_decimals(["0.3333"]) == 4
    for whole in (["1.25", "2.5"], ["1", "..."], ["1.25 2.75"], ["3.0 4.5"], ["3.0"]):
        assert printed_decimals(whole) is None
    assert most_decimals(["1.25 2.5\n", "YES 3\n"]) == 2 and most_decimals(["1 ..."]) == 0


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "print ",
            "the answer error 10 - ",
            "error ",
            "10^-",
            "1",
            "0.",
            "{",
            " ",
            "\\cdot",
            "e-1 ",
            "|a - b| ",
        ),
        *("rounded 2 ", "string ", "letter ", "either upper ", "case ", "leading ", "absolute 0.1"),
    ],
)
def test_a_statement_costs_in_proportion_to_its_length(unit):
    for act in (stated_tolerance, rounded_decimals, asks_for_digits, allows_any_case):
        assert growth(act, repeated(unit), 90_000) < 3
