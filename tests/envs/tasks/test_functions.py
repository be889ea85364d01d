"""HumanEval and MBPP: asserts become calls and conditions; rows from a file to real verdicts."""

import json

import pytest

from envs.judge.checkers import parse_condition
from envs.judge.extract import as_response
from envs.judge.judge import Judge, Submission
from envs.problem import Test, Verdict
from envs.sandbox import SandboxConfig, open_sandbox
from envs.tasks.loaders.functions import mbpp
from envs.tasks.parsers import SkipRow
from tests.envs.tasks.dataset_rows import load_problems

HUMANEVAL = [
    {
        "task_id": "HumanEval/900",
        "prompt": "from typing import List\n\n\ndef halves(values: List[float]) -> List[float]:\n"
        '    """ Half of each value, in order.\n    >>> halves([1.0, 4.0])\n    [0.5, 2.0]\n'
        '    """\n',
        "canonical_solution": "    return [value / 2 for value in values]\n",
        "entry_point": "halves",
        "test": "\n\nMETADATA = {\n    'author': 'x'\n}\n\n\ndef check(candidate):\n"
        "    assert candidate([1.0, 4.0]) == [0.5, 2.0]\n    assert candidate([]) == []\n"
        "    assert candidate([-3.0]) == [-1.5]\n",
    },
    {
        "task_id": "HumanEval/902",
        "prompt": 'def extremes(items):\n    """Smallest and largest item as a tuple."""\n',
        "canonical_solution": "    return (min(items), max(items)) if items else (None, None)\n",
        "entry_point": "extremes",
        "test": "def check(candidate):\n    assert candidate([3, 1, 2]) == (1, 3)\n"
        "    assert candidate([]) == (None, None)\n",
    },
]
MBPP = [
    {
        "task_id": 990,
        "text": "Write a function to check whether a word reads the same backwards.",
        "code": "def same_backwards(word):\r\n  return word == word[::-1]",
        "test_list": [
            'assert same_backwards("noon") == True',
            'assert same_backwards("moon")==False',
            'assert not same_backwards("ab")',
        ],
        "test_setup_code": "",
        "challenge_test_list": ['assert same_backwards("") is True'],
    },
    {
        "task_id": 991,
        "prompt": "Write a python function to find the area of a square's circle.",
        "source_file": "x",
        "code": "import math\ndef area(a):\n  return math.pi * a * a / 4",
        "test_imports": ["import math"],
        "test_list": [
            "assert math.isclose(area(2), 3.141592653589793)",
            "assert math.isclose(area(1), 0.7853981633974483, rel_tol=1e-7)",
        ],
    },
    {
        "task_id": 995,
        "text": "Write a function to find the distinct items, in any order.",
        "code": "def distinct(items):\n    return set(items)",
        "test_list": ["assert distinct((1, 2, 2)) == {1, 2}", "assert distinct([]) == set()"],
        "test_setup_code": "",
        "challenge_test_list": [],
    },
    {
        "task_id": 994,
        "text": "Write a function to measure a tree.",
        "code": "def depth(tree):\n    return 1",
        "test_list": ["assert depth(root) == 1"],
        "test_setup_code": "root = Node(1)",
        "challenge_test_list": [],
    },
]
WRONG = {
    "humaneval/HumanEval/900": "def halves(values):\n    return [value // 2 for value in values]",
    "humaneval/HumanEval/902": "def extremes(items):\n"
    "    return [min(items), max(items)] if items else (None, None)",
    "mbpp/990": "def same_backwards(word):\n    return word[0] == word[-1]",
    "mbpp/991": "def area(a):\n    return 3.14 * a * a / 4",
    "mbpp/995": "def distinct(items):\n    return sorted(set(items))",
}


@pytest.fixture
def load_rows(tmp_path):
    def read(schema, rows):
        file = tmp_path / f"{schema}.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        return load_problems(schema, file)

    return read


def test_own_solutions_are_accepted_and_near_misses_rejected(load_rows):
    problems = load_rows("humaneval", HUMANEVAL)[0] + load_rows("mbpp", MBPP)[0]
    assert {problem.name for problem in problems} == set(WRONG)
    with open_sandbox(SandboxConfig(kind="embedded", workers=1)) as sandbox:
        for programs, expected in (
            ({p.name: p.solutions[0] for p in problems}, True),
            (WRONG, False),
        ):
            asked = [Submission(p, as_response(programs[p.name])) for p in problems]
            found = dict(zip(programs, Judge(sandbox).judge(asked), strict=True))
            odd = {n: j for n, j in found.items() if (j.verdict is Verdict.ACCEPTED) != expected}
            assert not odd


# Asserts.


def read(code):
    """(Function, tests) of asserts, as MBPP has them."""
    found = mbpp({"test_list": [code], "text": "Call it."}, "p")
    return found.fn_name, found.tests


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
        ("assert f(__import__('sys')) == 1", "an assert holds more than calls and literals"),
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
        ("assert f(1) ==", "test_list is not Python"),
        ("assert f(" + "(" * 5000 + ")" * 5000 + ") == 1", "test_list is not Python"),
    ],
)
def test_what_a_call_test_cannot_hold_skips_the_problem(code, reason):
    with pytest.raises(SkipRow) as skipped:
        read(f"assert f(0) == 0\n{code}" if code != "assert True" else code)
    assert str(skipped.value) == reason
