"""The checker's rules, each with the case that other judges are known to get wrong."""

from pathlib import Path

import pytest
import yaml

from envs.judge.checkers import check, comparable, infer_checker
from tests.growth import growth, repeated

EVERY = ["tokens", "text", "floats", "rounded", "case_insensitive", "call"]

NINES = "9" * 6000
CASES = yaml.safe_load((Path(__file__).parent / "data" / "comparisons.yaml").read_text())
RIGHT = [*CASES["right"], ("tokens", NINES, f"0{NINES}")]
RIGHT += [("call", *case) for case in CASES["right calls"]]
RIGHT += [("call", NINES, f" {NINES}"), ("call", f"[{NINES}, 1]", f"[{NINES},1]")]
WRONG = [*CASES["wrong"], ("tokens", NINES, NINES[1:] + "8"), ("floats", "1.0", "1" + "0" * 400)]
WRONG += [("floats", "1" + "0" * 400, "1" + "0" * 400 + ".0")]
WRONG += [("call", *case) for case in CASES["wrong calls"]]
WRONG += [
    ("call", "0.5", NINES[:4500]),
    ("call", "0.5", "1" + "0" * 400),
    ("call", "1", "[" * 4000),
]


@pytest.mark.parametrize("case", RIGHT)
def test_right(case):
    assert check(*case) == (True, "")


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case):
    right, why = check(*case)
    assert not right and why


@pytest.mark.parametrize(
    "name",
    [
        *("needs_checker", "exact", "", "tokens absolute=1e-6 relative=0", "floats absolute=1e-6"),
        *("floats absolute=2 relative=0", "floats absolute=nan relative=0", "text case=lower"),
        *("floats absolute=x relative=0", "floats 1e-6", "floats  ", "text speed=1"),
    ],
)
def test_a_checker_that_cannot_compare_is_an_error(name):
    with pytest.raises(ValueError, match=f"checker {name!r} cannot"):
        check(name, "1", "1")


@pytest.mark.parametrize("expected", ["", "(1, 2)", "[" * 100_000, "1 2"])
def test_an_expected_value_that_is_no_json_cannot_be_compared(expected):
    assert not comparable("call", expected) and comparable("tokens", expected)
    with pytest.raises(ValueError, match="not JSON"):
        check("call", expected, "1")


@pytest.mark.parametrize(
    ("outputs", "checker"),
    [
        (["1 2\n", "3"], "tokens"),
        (["1\n", "2 0.5"], "floats"),
        (["YES -1.25"], "floats"),
        (["3."], "floats"),
        (["1e5"], "tokens"),
        (["192.168.0.1"], "tokens"),
        (["The end. 5"], "tokens"),
        ([], "tokens"),
    ],
)
def test_inferred(outputs, checker):
    assert infer_checker(outputs) == checker


@pytest.mark.parametrize("checker", EVERY)
@pytest.mark.parametrize("unit", ["1", "-", "1.", "1e", "e", " ", "1 ", "[", "[1,", '"', "\\"])
def test_an_output_costs_in_proportion_to_its_length(checker, unit):
    for expected in ("15", "1.5", "[{}1]"):

        def compare(output, expected=expected):
            check(checker, expected.format("1," * (len(output) // 64)), output)

        assert growth(compare, repeated(unit, end="x"), 1_000_000) < 3


@pytest.mark.parametrize(
    ("checker", "unit", "written"),
    [
        ("tokens", "7 ", "07 "),
        ("floats", "7.5 ", "7.50 "),
        ("floats", "7 ", "7.0 "),
        ("floats absolute=1e-06 relative=0.0", "7 ", "7.0000001 "),
        ("rounded", "7.5 ", "07.50 "),
        ("case_insensitive", "a 7 ", "A +7 "),
        ("call", "7.5,", "7.50,"),
        ("call", "[7],", "[ 7 ],"),
    ],
)
def test_equal_values_that_are_written_otherwise_cost_in_proportion_to_their_number(
    checker, unit, written
):
    start, end = ("[", "1]") if checker == "call" else ("0", "1")

    def compare(expected):
        assert check(checker, expected, expected.replace(unit, written) + " ")[0]

    assert growth(compare, repeated(unit, start, end), 1_000_000) < 3
