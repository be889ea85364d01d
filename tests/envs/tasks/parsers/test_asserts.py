"""Asserts become calls and conditions on results, or their problem is skipped for a reason."""

import pytest

from envs.judge.returned_values import parse_condition
from envs.problem import Test
from envs.tasks.loaders.functions import asserted_tests, literal, parse
from envs.tasks.parsers import SkipRow


def read(code):
    return asserted_tests(parse(code, "test"))


@pytest.mark.parametrize(
    ("code", "arguments", "condition"),
    [
        ("assert f(1, 'a') == [2]", '[1, "a"]', "result == [2]"),
        ("assert (3 == f([]))", "[[]]", "result == 3"),
        ("assert f() == None, 'nothing'", "[]", "result == None"),
        ("assert f(1) is None", "[1]", "result is None"),
        ("assert f(1) is True", "[1]", "result is True"),
        ("assert f(-1) is False", "[-1]", "result is False"),
        ("assert f(2)", "[2]", "result"),
        ("assert not f(2)", "[2]", "not result"),
        ("assert f({'a': [1]}) == {'b': None}", '[{"a": [1]}]', "result == {'b': None}"),
        ("assert f(1) == (1, (2, 'x'))", "[1]", "result == (1, (2, 'x'))"),
        ("assert f((1,)) == {1}", '[{"": ["tuple", [1]]}]', "result == {1}"),
        (
            "assert f({1: 2}) == {(1, 2): set()}",
            '[{"": ["dict", [[1, 2]]]}]',
            "result == {(1, 2): set()}",
        ),
        ("assert f(b'x') == 1 + 2j", '[{"": ["bytes", "78"]}]', "result == (1+2j)"),
        (
            "assert f(2**3 - 1, 'ab' * 2 + 'c', [0] * 3) == 7 // 2",
            '[7, "ababc", [0, 0, 0]]',
            "result == 3",
        ),
        ("assert f(1) == 1.0 / 4", "[1]", "result == 0.25"),
        ("assert f(1) == 1e999", "[1]", "result == 1e999"),
        ("assert f(1) == -(16 ** 3000)", "[1]", "result == -0x1" + "0" * 3000),
        ("assert abs(f(3) - 2) < 1e-6", "[3]", "abs(result - 2) < 1e-06"),
        ("assert abs(0.5 - f(3)) <= 1e-7", "[3]", "abs(result - 0.5) <= 1e-07"),
        ("assert abs(f(1) - 3.14) < 0.01", "[1]", "abs(result - 3.14) < 0.01"),
        (
            "assert math.isclose(f(3), 0.25)",
            "[3]",
            "math.isclose(result, 0.25, rel_tol=1e-09, abs_tol=0.0)",
        ),
        (
            "assert isclose(f(3), 2e9, rel_tol=1e-6)",
            "[3]",
            "math.isclose(result, 2000000000.0, rel_tol=1e-06, abs_tol=0.0)",
        ),
    ],
)
def test_an_assert_is_a_call_and_a_condition_on_its_result(code, arguments, condition):
    assert read(code) == ("f", (Test(arguments, condition),))
    assert parse_condition(condition).text() == condition


def test_what_tests_nothing_is_passed_over_and_what_is_said_twice_counts_once():
    code = "'why'\nimport math\nassert True, 'fine'\nassert f(1) == 1\npass\nassert 1 == f(1)\n"
    assert read(code) == ("f", (Test("[1]", "result == 1"),))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("assert set(f([1])) == set([1])", "an assert holds more than calls and literals"),
        ("assert f(1) == {**{}}", "an assert holds more than calls and literals"),
        ("assert f(1) == {[1]}", "an assert holds a set or dict that Python refuses"),
        ("assert f(1) == {(1, [2]): 3}", "an assert holds a set or dict that Python refuses"),
        ("assert f(1) == 1e999 - 1e999", "an assert holds arithmetic that is not followed"),
        ("assert f(...) == 1", "an assert holds a ellipsis"),
        ("assert f(1) != 2", "an assert is not one call compared with a literal"),
        ("assert 1 < f(1) < 3", "an assert is not one call compared with a literal"),
        ("assert f(a=1) == 1", "an assert is not one call compared with a literal"),
        ("assert f.g(1) == 1", "an assert is not one call compared with a literal"),
        ("assert False", "an assert is not one call compared with a literal"),
        ("assert f(1) == f(2)", "an assert holds more than calls and literals"),
        ("assert f(*[1]) == 1", "an assert holds more than calls and literals"),
        ("assert f(x) == 1", "an assert holds more than calls and literals"),
        (
            "assert f(__import__('sys')) == 1",
            "an assert holds more than calls and literals",
        ),
        ("assert f(1) == 1\nassert g(1) == 1", "the asserts call more than one function"),
        ("assert abs(f(1) - 'a') < 1e-6", "an assert compares what is no number"),
        ("for i in range(3):\n assert f(i) == i", "the tests are more than asserts"),
        ("x = 3\nassert f(3) == 3", "the tests are more than asserts"),
        ("assert f(1) == 10 ** 10 ** 10", "an assert holds arithmetic that is not followed"),
        ("assert f(1) == 'a' * 10 ** 9", "an assert holds arithmetic that is not followed"),
        (
            "assert f(1) == [[[0] * 1000] * 1000] * 1000",
            "an assert holds arithmetic that is not followed",
        ),
        ("assert f(1) == 1 / 0", "an assert holds arithmetic that is not followed"),
        ("assert f(1) == '%999999999d' % 1", "an assert holds arithmetic that is not followed"),
        ("assert True", "no tests"),
        ("assert f(1) ==", "test is not Python"),
        ("assert f(" + "(" * 5000 + ")" * 5000 + ") == 1", "test is not Python"),
    ],
)
def test_what_a_call_test_cannot_hold_skips_the_problem(code, reason):
    with pytest.raises(SkipRow) as skipped:
        read(f"assert f(0) == 0\n{code}" if code != "assert True" else code)
    assert str(skipped.value) == reason


@pytest.mark.parametrize(
    "code", ["-1", "[1, -2.5, 'a', None, True]", "(1,) * 2", "{'a': ()}", "{1, (2,)}", "set()"]
)
def test_literals_have_pythons_own_values(code):
    assert literal(parse(code, "it")[0].value) == eval(code)
