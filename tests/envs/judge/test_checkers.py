"""The checkers: cases that other judges get wrong; returned values as Python's `==` has them."""

import itertools
import json
import re
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.judge.checkers import check, comparable, json_equal, literal_text, parse, python_equal
from envs.problem import Test
from envs.sandbox.inside.framing import decode, encode
from envs.tasks.checker_rules import comparing_checker
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
    tests = [Test("", output) for output in outputs]
    assert comparing_checker("", tests) == checker


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


Pair = namedtuple("Pair", "a b")
Level = IntEnum("Level", "LOW HIGH")
Colour = Enum("Colour", "RED")
BIG = 10**5000


class Everything:
    """Equal to everything, and true."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0

    def __repr__(self):
        return "[1, 2]"


class Disguised:
    """A class that says that it is a list."""

    __class__ = list

    def __iter__(self):
        return iter([1, 2])

    def __eq__(self, other):
        return True


class OwnText(str):
    def __eq__(self, other):
        return True

    def __str__(self):
        return "right"

    __hash__ = str.__hash__


class OwnList(list):
    def __iter__(self):
        return iter([1, 2])

    def __len__(self):
        return 2

    def __eq__(self, other):
        return True


def accepts(expected, returned):
    """Whether `assert f() == expected` holds where f returns `returned`, for this judge."""
    return check("assert", f"result == {literal_text(expected)}", encode(returned))[0]


VALUES = [
    *(None, True, False, 0, 1, -1, 2, 1.0, 0.5, -0.0, 1e300, float("inf"), 2**53, 2**53 + 1, 2**63),
    *(BIG, -BIG, BIG + 1, 1j, 1 + 0j, "", "a", "é\ud800", b"", b"a", [], [1, 2], [1.0, True]),
    *((), (1,)),
    *((1, 2), [(1, 2)], [[1, 2]], {}, {"a": 1}, {1: "a"}, {"1": "a"}, {(1, 2): [3]}, {"": [1]}),
    *({None: 1}, set(), {1, 2}, {1.0, 2}, {"a", (1, "b")}, [None], {"": ["tuple", [1, 2]]}),
]
OTHERS = [
    *(Pair(1, 2), Level.LOW, Counter("ab"), OrderedDict(a=1), defaultdict(list, {1: "a"})),
    *(frozenset({1, 2}), {1: 0, 2: 0}.keys(), {1: 2}.items(), bytearray(b"a"), Fraction(1, 2)),
    *(Decimal("0.5"), Decimal(2), Decimal("NaN"), Decimal("inf"), float("nan"), [float("nan")]),
    *(iter([1, 2]), map(str, [1]), (n for n in [1, 2]), range(3), deque([1, 2]), object(), len),
    *(Colour.RED, {1: 2}.values(), slice(1), ...),
]


def test_equal_is_what_python_calls_equal():
    for expected, returned in itertools.product(VALUES, [*VALUES, *OTHERS]):
        assert accepts(expected, returned) == (expected == returned), (
            literal_text(expected)[:40],
            encode(returned)[:40],
        )


NUMBERS = st.one_of(
    st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, -0.0, 1.0, 2.5, 2.0**70, 2**70, 1j])
)
HASHABLE = st.recursive(
    st.one_of(st.none(), NUMBERS, st.sampled_from(["", "a", "1"]), st.sampled_from([b"", b"a"])),
    lambda inner: st.lists(inner, max_size=2).map(tuple),
    max_leaves=4,
)
ANY = st.recursive(
    st.one_of(HASHABLE, st.sets(HASHABLE, max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(HASHABLE, inner, max_size=2),
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(ANY, ANY)
def test_equal_is_what_python_calls_equal_for_any_values(expected, returned):
    assert accepts(expected, returned) == (expected == returned)
    assert accepts(returned, returned)


@settings(max_examples=60)
@given(ANY)
def test_arguments_arrive_as_they_are(value):
    arrived = decode(encode([value]))
    assert arrived == [value] and literal_text(arrived) == literal_text([value])


@pytest.mark.parametrize("forged", [Everything(), Disguised()])
def test_a_class_cannot_make_its_values_equal(forged):
    for expected in ([1, 2], 1, "right", None, {"a": 1}):
        assert not accepts(expected, forged) and not json_equal(
            expected, parse(encode(forged).encode())
        )


def test_of_a_subclass_only_the_built_in_value_counts():
    assert accepts("wrong", OwnText("wrong")) and not accepts("right", OwnText("wrong"))
    assert accepts([3], OwnList([3])) and not accepts([1, 2], OwnList([3]))


def test_numpy_counts_as_its_own_comparison_says():
    numpy = pytest.importorskip("numpy")
    assert accepts(3, numpy.int64(3)) and accepts([0.5], [numpy.float64(0.5)])
    assert accepts(True, numpy.bool_(True)) and accepts(1, numpy.bool_(True))
    assert not check("assert", "result is True", encode(numpy.bool_(True)))[0]
    assert accepts({3: "a"}, {numpy.int32(3): "a"})
    assert not accepts([1, 2], numpy.array([1, 2]))  # the truth of two comparisons is ambiguous
    assert accepts([1], numpy.array([1])) and accepts(1, numpy.array([[1]]))
    assert not check("assert", "result", encode(numpy.ones(10_000)))[0]
    assert check("call", "[1]", encode(numpy.array([1])))[0]
    assert not check("call", "[1, 2]", encode(numpy.array([1, 2])))[0]


@pytest.mark.parametrize(
    ("condition", "right", "wrong"),
    [
        (
            "result",
            [True, 1, "a", [0], (0,), {0}, object, iter(()), BIG, 0.5],
            [0, None, "", [], ()],
        ),
        ("not result", [False, 0, 0.0, None, "", [], (), set(), {}, b"", 0j], [1, [0], object()]),
        ("result is True", [True], [1, 1.0, "True", None]),
        ("result is None", [None], [0, False, "None", []]),
        (
            "abs(result - 0.5) < 1e-06",
            [0.5, 0.5000009, Fraction(1, 2), 0.5 + 0j],
            [0.500001, "a", None, Decimal("0.5")],
        ),
        ("abs(result - 2) <= 1", [1, 3.0, True, Decimal(2)], [3.1, 0, [2], 10**400, float("nan")]),
        ("math.isclose(result, 2.0, rel_tol=1e-09, abs_tol=0.0)", [2, 2.000000001], [2.1, "2", 1j]),
    ],
)
def test_other_conditions_hold_as_in_python(condition, right, wrong):
    assert all(check("assert", condition, encode(value)) == (True, "") for value in right)
    assert not any(check("assert", condition, encode(value))[0] for value in wrong)


def test_of_a_data_set_in_json_a_tuple_is_a_list():
    """As the graders of TACO and APPS have it: `list(output) == expected`, else Python's `==`."""

    def accepts(expected, returned):
        return check("call", json.dumps(expected), encode(returned))[0]

    assert accepts([1, [2, 3]], (1, (2, 3))) and accepts({"a": 1}, Counter("a"))
    assert accepts({"1": [2]}, {1: (2,)}) and accepts({"null": 0}, {None: 0})
    assert accepts(True, 1) and accepts(1, True) and accepts(0.5, Decimal("0.5"))
    for returned in ({1, 2}, (n for n in (1, 2)), deque([1, 2]), {1: 0, 2: 0}.keys(), range(1, 3)):
        assert not accepts([1, 2], returned)
    assert (
        not accepts("12", 12) and not accepts("9" * 5000, BIG) and not accepts({"a": 1}, {"b": 1})
    )


def test_nothing_equals_a_nan():
    assert not comparable("call", "[NaN]") and not comparable("call", '{"a": [1, NaN]}')
    assert comparable("call", '"NaN"') and comparable("call", "[Infinity]")
    for expected in ("NaN", "[NaN]", "[1, NaN]", '{"a": NaN}'):
        assert not check("call", expected, expected)[0]
    assert check("call", '["NaN", 0.1]', '["NaN", 0.1000000001]')[0]


SENT = """
{"": []} | {"": ["tuple"]} | {"": ["tuple", 5]} | {"": ["dict", [1]]} | {"": [1, 2]}
{"": ["int", "x"]} | {"": ["int", 5]} | {"": ["Fraction", "1", "0"]} | {"": ["set", 1]}
{"": ["Fraction", 1]} | {"": ["complex", [1]]} | {"": ["bytes", "zz"]} | {"": ["other"]}
{"": ["set", [{"": ["bytes", "zz"]}]]} | {"": ["set", [[1]]]} | {"": ["array", "x"]}
{"": ["dict", [[[1], 1]]]} | nul | \xff | 1 2 | {"": ["set", [1, 1]]} |
"""


@pytest.mark.parametrize("sent", [*re.split(r" \| |\n", SENT.strip("\n")), "[" * 3000])
def test_what_the_sandbox_would_never_send_is_wrong(sent):
    for expected in (1, "a", [1], (1,), {1}, {1, 2}, {1: 1}, None, b"a", 1j):
        assert not check("assert", f"result == {literal_text(expected)}", sent)[0]
        if not isinstance(expected, tuple | set | bytes | complex):
            assert not check("call", json.dumps(expected), sent)[0]


def test_chosen_integers_do_not_slow_a_set_down():
    """They have one hash, so a set or dictionary of them would take quadratic time."""
    modulus = 2**61 - 1
    expected = set(range(10_000))
    alike = [1 + modulus * n for n in range(10_000)]
    pairs = [[n, 1] for n in alike]
    started = time.process_time()
    assert not python_equal(expected, {"": ["set", alike]})
    assert not python_equal(dict.fromkeys(expected, 1), {"": ["dict", pairs]})
    assert not json_equal({str(n): 1 for n in expected}, {"": ["dict", pairs]})
    assert time.process_time() - started < 3


UNITS = ['{"": ["tuple", [', "[[],", '{"": ["int", "0x', "9", '{"a": ', '"\\u']


@pytest.mark.parametrize("unit", UNITS)
def test_a_result_costs_in_proportion_to_its_length(unit):
    for condition in ("result == [1]", "result", "result == {1: (1, {2})}", "abs(result - 1) < 1"):

        def compare(sent, condition=condition):
            check("assert", condition, sent)

        assert growth(compare, repeated(unit, end="x"), 1_000_000) < 3
