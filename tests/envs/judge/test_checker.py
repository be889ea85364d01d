"""The checker's rules, each with the case that other judges are known to get wrong."""

import time

import pytest

from envs.judge.checkers import check, comparable, infer_checker
from tests.growth import growth, repeated

BIG = 2**53
EVERY = ["tokens", "text", "floats", "rounded", "case_insensitive", "call"]

RIGHT = [
    ("tokens", "1 2\n", "1 2"),
    ("tokens", "1\n2\n", "  1   2\n\n"),
    ("tokens", "a\n\nb\n", "a\nb"),
    ("tokens", "a b", b"a\tb\r\n"),
    ("tokens", "", "\n \n"),
    ("tokens", "7", "007"),
    ("tokens", "7", "+7"),
    ("tokens", "0", "-0"),
    ("tokens", "-12", "-012"),
    ("tokens", "9" * 6000, "0" + "9" * 6000),
    ("tokens", "ж é", "ж é"),
    ("floats", "1.500", "1.5"),
    ("floats", "1.5", "1.5000009"),
    ("floats", "0.333333333333", "0.3333333333333333"),
    ("floats", "1000000000.0", "1000000999"),
    ("floats", "2.0", "2"),
    ("floats", "2", "2.0"),
    ("floats", "1e-7", "0.0"),
    ("floats", "YES 0.5", "YES .5"),
    ("floats", "100.0", "1e2"),
    ("floats", "-0.0", "0"),
    ("floats", "1", "0.9999999"),
    ("floats", "-3", "-3."),
    ("floats", "123456789", "123456789.1"),
    ("floats", "123456789", "1.23456789e8"),
    ("floats", str(10**18 + 1), f"{10**18 + 1:.1f}"),
    ("case_insensitive", "Yes\nNO", "yES no"),
    ("case_insensitive", "5 A", "05 a"),
    ("text", "00101 7", "00101\n7"),
    ("text case=any", "Yes 01", "YES 01"),
    ("floats absolute=1e-09 relative=0.0", "0.5", "0.5000000009"),
    ("floats absolute=0.0 relative=1e-06", "0.0", "1e-9"),
    ("floats absolute=0.0 relative=1e-06", "1000000.0", "1000000.9"),
    ("floats absolute=0.01 relative=0.0", "3.00 -1", "3.009 -1"),
    ("floats absolute=1e-06 relative=0.0", "5", "5.0000001"),
    ("floats absolute=1e-06 relative=1e-06", "123456789", "123456700.0"),
    ("rounded", "4.30 -0.00 12", "4.3 0 12"),
    ("rounded", "3.00", "3"),
    ("rounded", "3.00", "+03.0"),
]

WRONG = [
    ("tokens", "0\n1\n1\n0", "1\n0"),
    ("tokens", "1 2", "12"),
    ("tokens", "12", "1 2"),
    ("tokens", "1 2 3", "1 2"),
    ("tokens", "1 2", "1 2 3"),
    ("tokens", "", "0"),
    ("tokens", "0", ""),
    ("tokens", "YES", "yes"),
    ("tokens", "YES", "NO"),
    ("tokens", "7", "7.0"),
    ("tokens", "7", "-7"),
    ("tokens", "-0", "1"),
    ("tokens", "1000", "1_000"),
    ("tokens", "12", "١٢"),
    ("tokens", "true", "1"),
    ("tokens", "1", "True"),
    ("floats", "nan", "NaN"),
    ("tokens", str(BIG), str(BIG + 1)),
    ("tokens", "9" * 6000, "9" * 5999 + "8"),
    ("floats", str(BIG), str(BIG + 1)),
    ("floats", "1.5", "1.50001"),
    ("floats", "1.5", "nan"),
    ("floats", "1.5", "inf"),
    ("floats", "1.5", "1.5.0"),
    ("floats", "1.5", "1_1.5"),
    ("floats", "NO", "0.0"),
    ("floats", "0.5", "YES"),
    ("floats", "1.0", "1" + "0" * 400),
    ("floats", "123456789", "123456700.0"),
    ("floats", "123456789", "123456790.0"),
    ("floats", "1000000", "1000000.5"),
    ("floats", str(10**18), f"{10**18 + 1000:.1f}"),
    ("floats", "1" + "0" * 400, "1" + "0" * 400 + ".0"),
    ("floats", "1.5", "0x1.8p0"),
    ("case_insensitive", "Yes", "No"),
    ("case_insensitive", "1.5", "1.50"),
    ("text", "00101", "101"),
    ("text", "7", "+7"),
    ("text", "Yes 01", "YES 01"),
    ("text case=any", "Yes 01", "YES 1"),
    ("floats absolute=1e-09 relative=0.0", "0.5", "0.500000002"),
    ("floats absolute=1e-06 relative=0.0", "1000000.0", "1000000.1"),
    ("floats absolute=0.0 relative=1e-09", "0.001", "0.001000001"),
    ("floats absolute=1e-06 relative=1e-06", "123456789", "123456790"),
    ("floats absolute=1e-06 relative=1e-06", "5", "six"),
    ("rounded", "4.33", "4.3300009"),
    ("rounded", "4.33", "4.34"),
    ("rounded", "4.33", "-4.33"),
    ("rounded", "4.33", "4.33e0"),
    ("rounded", "1000000.50", "1000000.49"),
]

CALLS_RIGHT = [
    ("[1, 2]", "[1,2]"),
    ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
    ("7", "7.0"),
    ("true", "true"),
    ("0.1", "0.10000000001"),
    ("[[0.5], null]", "[[0.5000001], null]"),
    ('"é"', '"\\u00e9"'),
    ("9" * 5000, " " + "9" * 5000),
    ("[" + "9" * 5000 + ", 1]", "[" + "9" * 5000 + ",1]"),
]

CALLS_WRONG = [
    ("[1, 2]", "[2, 1]"),
    ("[1, 2]", "[1]"),
    ("[1]", "1"),
    ("7", '"7"'),
    ("7", "6.9999999"),
    ("null", "0"),
    ('{"a": 1}', '{"a": 1, "b": 2}'),
    ("0.5", '"0.5"'),
    ("0.5", "9" * 4500),
    ("0.5", "1" + "0" * 400),
    ("1", ""),
    ("1", "[" * 4000),
    ("1", "print"),
    ("[" + "9" * 5000 + "]", "[" + "9" * 4999 + "8]"),
]


@pytest.mark.parametrize("case", RIGHT)
def test_right(case):
    assert check(*case) == (True, "")


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case):
    right, why = check(*case)
    assert not right
    assert why


@pytest.mark.parametrize("case", CALLS_RIGHT)
def test_right_return_value(case):
    assert check("call", *case) == (True, "")


@pytest.mark.parametrize("case", CALLS_WRONG)
def test_wrong_return_value(case):
    right, why = check("call", *case)
    assert not right
    assert why


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


def test_a_hostile_output_costs_the_host_little():
    started = time.process_time()
    assert not check("tokens", "1 2 3", b"1 " * 8_000_000)[0]
    assert not check("tokens", "5", b"9" * 16_000_000)[0]
    assert not check("call", "5", b"[" * 16_000_000)[0]
    assert not check("call", "5", b"9" * 4_000)[0]
    assert time.process_time() - started < 5


@pytest.mark.parametrize("checker", EVERY)
@pytest.mark.parametrize("start", ["", "-", "1.", ".", "1e", "1.0e+", "0", "[" * 900 + "1"])
def test_a_number_that_is_none_after_a_million_digits_costs_the_host_little(checker, start):
    hostile = start.encode() + b"1" * 1_000_000 + b"x"
    started = time.process_time()
    for expected in ("1.5", "5", "9" * 100_000):
        assert not check(checker, expected, hostile)[0]
    assert infer_checker([hostile.decode()]) == "tokens"
    assert time.process_time() - started < 2


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


def test_equal_outputs_are_quick():
    text = " ".join(map(str, range(200_000)))
    started = time.process_time()
    for _ in range(10):
        assert check("floats", text, text.encode() + b"\n")[0]
    assert time.process_time() - started < 2
