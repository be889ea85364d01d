"""Programs that solve nothing: the tests that they pass, computed and by running them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from envs.environment import Submission
from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig
from envs.problem import Problem, Test
from envs.sandbox import SandboxConfig, open_sandbox
from envs.tasks.rows import SizeLimits, limit_tests, load_problems, why_left_out
from envs.tasks.strength import CHEAP_PROGRAMS, cheap_programs, passed_counts, shown_tests
from tests.envs.tasks.dataset_rows import converter_of

DATA = Path(os.environ.get("SPO_BENCH_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data rows in {DATA}")


def problem(tests, checker="tokens", statement="", **fields):
    return Problem("p", statement, (), tuple(Test(*test) for test in tests), checker, **fields)


SHOWN = "In 1 comes, out goes 5. In 2 comes, out goes 7 7."
SAMPLES = [("1\n", "5\n"), ("2\n", "7 7\n")]
CASES = {
    "samples only": problem(SAMPLES, statement=SHOWN),
    "one is hidden": problem([*SAMPLES, ("3\n", "9\n")], statement=SHOWN),
    "one output": problem([("1\n", "No\n"), ("2\n", "No\n")]),
    "either case": problem([("1\n", "no\n"), ("2\n", "No\n")], "case_insensitive"),
    "floats": problem([("1\n", "0.0\n"), ("2\n", "0.0000001\n")], "floats"),
    "a stated tolerance": problem(
        [("1\n", "0.0\n"), ("2\n", "0.009\n")], "floats absolute=0.01 relative=0.0"
    ),
    "digits": problem([("1\n", "00\n"), ("2\n", "0\n")], "text"),
    "echo": problem([("1 2\n", "1 2\n"), ("3 4\n", "3\n4\n")]),
    "minus one": problem([("1\n", "-1\n"), ("2\n", "-01\n")]),
    "words": problem([("é\r\n", "ü\n"), ("'\n", '"""\\\n')], statement='For é ü, for \' """\\ .'),
    "nothing": problem([("1\n", " \n"), ("2\n", "\n")]),
    "call": problem(
        [("[[1, 2]]", "3"), ('["é"]', '{"a": [null, 1.5]}')],
        "call",
        'f([1, 2]) is 3, f("é") is {"a": [null, 1.5]}',
        fn_name="f",
    ),
    "call of a constant": problem([("[1]", "-1"), ("[0]", "-1")], "call", fn_name="f"),
    "assert of tuples": problem(
        [
            ('[{"": ["tuple", [1, 2]]}]', "result == (2, 1)"),
            ("[[]]", "result == {'a': {3}}"),
            ("[1]", "abs(result - 0.5) < 0.1"),
        ],
        "assert",
        "f((1, 2)) is (2, 1), f([]) gives {'a': {3}}, f(1) is 0.5",
        fn_name="f",
    ),
    "assert of truth": problem([("[3]", "result")], "assert", fn_name="f"),
    "call of nothing": problem([("[]", "null")], "call", fn_name="f"),
    "call that echoes": problem([('["a"]', '"a"'), ("[[]]", "[]")], "call", fn_name="f"),
}
# which programs pass every test
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


def test_without_shown_tests_there_is_no_table():
    counts = passed_counts(CASES["one output"], [])
    assert [n for n, c in zip(CHEAP_PROGRAMS, counts, strict=True) if c is None] == [
        "samples table",
        "longest sample output",
    ]


def test_no_count_where_no_comparison_decides():
    assert passed_counts(replace(CASES["echo"], checker="needs_checker"), []) is None


def test_a_table_too_long_for_a_program_earns_nothing():
    tests = tuple(Test(f"{i}\n", "x" * 300_000 + str(i)) for i in range(2))
    one = replace(CASES["echo"], tests=tests)
    assert passed_counts(one, tests)[0] == 0


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("taco", "taco_stdin"),
        ("taco", "taco_special_judge"),
        ("code_contests", "code_contests_test"),
        ("code_contests", "code_contests_train"),
        ("code_contests", "code_contests_olympiad"),
        ("apps", "apps_stdin_with_wrong"),
        ("mbpp", "mbpp"),
    ],
)
def test_they_pass_the_same_tests_on_real_rows(judge, task, name):
    problems, _ = load_problems(converter_of(task), DATA / f"{name}.jsonl")
    limits = SizeLimits(8, 100_000)
    problems = [limit_tests(one, limits) for one in problems]
    problems = [one for one in problems if why_left_out(one) is None][:150]
    assert json.dumps(run(judge, problems)) == json.dumps(
        [passed_counts(one, shown_tests(one)) for one in problems]
    )
