"""Which tests stand in a statement, and which tests cheap programs pass, computed and run."""

import time
from dataclasses import replace

import pytest

from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import Problem, Test
from envs.sandbox import SandboxConfig, open_sandbox
from envs.tasks.strength import (
    CHEAP_PROGRAMS,
    MAX_GAP_CHARS,
    cheap_programs,
    measure_strength,
    passed_counts,
    shown_tests,
)


def problem(statement, *tests, samples=(), **fields):
    pairs = tuple(Test(*test) for test in tests)
    return Problem("p", statement, tuple(Test(*sample) for sample in samples), pairs, **fields)


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("Add.\n\n-----Sample Input-----\n2\n3 4\n\n-----Sample Output-----\n7 1\n", True),
        ("Add.\nInput:\n\n2\n3   4\n\nOutput:\n\n7\n1", True),
        ("Add. For `2 3 4` print `7 1`.", True),
        ("Add. For 2 3 4 print 71.", False),
        ("Add. For 2 3 45 print 7 1.", False),
        ("Add. For 12 3 4 print 7 1.", False),
        ("Print 7 1 first; then comes 2 3 4.", False),
        (f"For 2 3 4, {'and so on, ' * MAX_GAP_CHARS} print 7 1.", False),
        ("2 3 4 is one input. 2 3 4 gives 7 1.", True),
        ("", False),
    ],
)
def test_a_test_is_shown_if_its_output_follows_its_input(statement, shown):
    assert len(shown_tests(problem(statement, ("2\n3 4\n", "7\n1\n")))) == shown


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        (">>> f([1, 2], 'ab')\nTrue", True),
        ('Input: xs = [1,2], s = "AB"\nOutput: true', True),
        ("f((1, 2), 'ab') == True", True),
        ("f([1, 2, 3], 'ab') == True", False),
        ("f([1, 2], 'ab') == False", False),
    ],
)
def test_a_call_is_shown_in_any_of_the_usual_spellings(statement, shown):
    one = problem(statement, ('[[1, 2], "ab"]', "true"), fn_name="f", checker="call")
    assert len(shown_tests(one)) == shown


def test_samples_are_shown_wherever_they_stand():
    tests = [("1\n", "2\n"), ("5\n", "6\n"), ("7", "8")]
    one = problem("Print n + 1.", *tests, samples=[("1", "2"), ("9", "10")])
    strength = measure_strength(one)
    assert (strength.tests, strength.hidden, strength.distinct_outputs) == (3, 2, 3)


@pytest.mark.parametrize(
    ("tests", "weakness"),
    [
        ([("1", "a"), ("2", "b")], None),
        ([("1", "a"), ("2", "a ")], "one output for all tests"),
        ([("1", "a")], "fewer than task.min_hidden_tests=2 hidden tests"),
        ([("8", "9"), ("1", "b")], "fewer than task.min_hidden_tests=2 hidden tests"),
    ],
)
def test_the_reason_for_leaving_a_problem_out(tests, weakness):
    assert measure_strength(problem("For 8 print 9.", *tests)).weakness(2) == weakness


def test_outputs_that_the_checker_does_not_tell_apart_are_one():
    tests = [("1", "yes"), ("2", "Yes")]
    assert measure_strength(problem("", *tests)).weakness(2) is None
    either_case = problem("", *tests, checker="case_insensitive")
    assert measure_strength(either_case).weakness(2) == "one output for all tests"


@pytest.mark.parametrize(
    ("statement", "test"),
    [
        ("1 " * 100_000, ("1", "2")),
        ("1" * 200_000, ("1", "1")),
        ("a b " * 50_000, ("a b " * 20_000 + "c", "d")),
        ("[[" * 50_000, ("[[[1]]]", "1")),
        ("1 2 " * 50_000, ("1\n2\n", "1 2 " * 40_000 + "3")),
    ],
)
@pytest.mark.parametrize("fn_name", [None, "f"])
def test_hostile_statements_take_linear_time(statement, test, fn_name):
    one = problem(statement, test, fn_name=fn_name, checker="call" if fn_name else "tokens")
    begin = time.process_time()
    shown_tests(one)
    assert time.process_time() - begin < 1


# Cheap programs.


def of_tests(tests, checker="tokens", statement="", **fields):
    return Problem("p", statement, (), tuple(Test(*test) for test in tests), checker, **fields)


SHOWN = "In 1 comes, out goes 5. In 2 comes, out goes 7 7."
SAMPLES = [("1\n", "5\n"), ("2\n", "7 7\n")]
CASES = {
    "samples only": of_tests(SAMPLES, statement=SHOWN),
    "one is hidden": of_tests([*SAMPLES, ("3\n", "9\n")], statement=SHOWN),
    "one output": of_tests([("1\n", "No\n"), ("2\n", "No\n")]),
    "either case": of_tests([("1\n", "no\n"), ("2\n", "No\n")], "case_insensitive"),
    "floats": of_tests([("1\n", "0.0\n"), ("2\n", "0.0000001\n")], "floats"),
    "a stated tolerance": of_tests(
        [("1\n", "0.0\n"), ("2\n", "0.009\n")], "floats absolute=0.01 relative=0.0"
    ),
    "digits": of_tests([("1\n", "00\n"), ("2\n", "0\n")], "text"),
    "echo": of_tests([("1 2\n", "1 2\n"), ("3 4\n", "3\n4\n")]),
    "minus one": of_tests([("1\n", "-1\n"), ("2\n", "-01\n")]),
    "words": of_tests([("é\r\n", "ü\n"), ("'\n", '"""\\\n')], statement='For é ü, for \' """\\ .'),
    "nothing": of_tests([("1\n", " \n"), ("2\n", "\n")]),
    "call": of_tests(
        [("[[1, 2]]", "3"), ('["é"]', '{"a": [null, 1.5]}')],
        "call",
        'f([1, 2]) is 3, f("é") is {"a": [null, 1.5]}',
        fn_name="f",
    ),
    "call of a constant": of_tests([("[1]", "-1"), ("[0]", "-1")], "call", fn_name="f"),
    "assert of tuples": of_tests(
        [
            ('[{"": ["tuple", [1, 2]]}]', "result == (2, 1)"),
            ("[[]]", "result == {'a': {3}}"),
            ("[1]", "abs(result - 0.5) < 0.1"),
        ],
        "assert",
        "f((1, 2)) is (2, 1), f([]) gives {'a': {3}}, f(1) is 0.5",
        fn_name="f",
    ),
    "assert of truth": of_tests([("[3]", "result")], "assert", fn_name="f"),
    "call of nothing": of_tests([("[]", "null")], "call", fn_name="f"),
    "call that echoes": of_tests([('["a"]', '"a"'), ("[[]]", "[]")], "call", fn_name="f"),
}
# the cheap programs that pass every test
EARNED = {
    "samples only": {"samples table"},
    "one is hidden": set(),
    "one output": {"first output"},
    "either case": {"first output", "NO"},
    "floats": {"first output", "0"},
    "a stated tolerance": {"first output", "0"},
    "digits": set(),
    "echo": {"echo of the input"},
    "minus one": {"first output", "-1"},
    "words": {"samples table"},
    "nothing": {"first output", "empty"},
    "call": {"samples table"},
    "call of a constant": {"first output", "-1"},
    "assert of tuples": {"samples table"},
    "assert of truth": {"first output", "echo of the input", "1", "-1", "YES"},
    "call of nothing": {"first output", "empty"},
    "call that echoes": {"echo of the input"},
}


@pytest.fixture(scope="module")
def judge():
    with open_sandbox(SandboxConfig(kind="embedded")) as sandbox:
        yield Judge(sandbox, JudgeConfig(early_stop=False))


def run(judge, problems):
    """Return the tests that each program passes, as `passed_counts` does."""
    submissions, places = [], []
    counts = [[None] * len(CHEAP_PROGRAMS) for _ in problems]
    for row, one in enumerate(problems):
        for program in cheap_programs(one, shown_tests(one)):
            places.append((row, CHEAP_PROGRAMS.index(program.name)))
            submissions.append(Submission(one, as_response(program.source)))
    for (row, column), judgement in zip(places, judge.judge(submissions), strict=True):
        counts[row][column] = judgement.passed
    return counts


@pytest.mark.parametrize("name", CASES)
def test_what_they_earn(name):
    one = CASES[name]
    counts = passed_counts(one, shown_tests(one))
    earned = {n for n, c in zip(CHEAP_PROGRAMS, counts, strict=True) if c == len(one.tests)}
    assert earned == EARNED[name]


def test_they_pass_the_same_tests_when_they_are_run(judge):
    problems = list(CASES.values())
    assert run(judge, problems) == [passed_counts(one, shown_tests(one)) for one in problems]


def test_a_table_too_long_for_a_program_earns_nothing():
    tests = tuple(Test(f"{i}\n", "x" * 300_000 + str(i)) for i in range(2))
    one = replace(CASES["echo"], tests=tests)
    assert passed_counts(one, tests)[0] == 0
