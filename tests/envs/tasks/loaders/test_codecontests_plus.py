"""CodeContests+ rows: checkers, caps on tests, languages."""

import pytest

from envs.problem import CheckerProgram
from envs.tasks.loaders import codecontests_plus
from envs.tasks.loaders.code_contests import codecontests_plus as problem
from envs.tasks.parsers import SkipRow
from tests.envs.tasks.contest_rows import ADD, SUBTRACT
from tests.envs.tasks.contest_rows import codecontests_plus as row


def test_columns():
    made = problem(row(4), "codecontests_plus/00000")
    assert made.name == "codecontests_plus/4_A" and made.source == "Codeforces"
    assert (made.time_limit_s, made.memory_limit_mb) == (2.0, 256)
    assert (made.solutions, made.incorrect_solutions) == ((ADD,), (SUBTRACT,))
    assert made.checker == "program" and len(made.tests) == made.generated_tests == 4
    assert made.checker_program == CheckerProgram("testlib", row()["checker"])
    assert problem(row(checker=None), "p").checker == "tokens"


def test_only_two_large_tests_are_kept(monkeypatch):
    monkeypatch.setattr(codecontests_plus, "MAX_TEST_BYTES", 10)
    monkeypatch.setattr(codecontests_plus, "MAX_LARGE_BYTES", 100)
    sizes = [3, 40, 200, 50, 5, 60, 9]
    tests = [{"input": "i" * (size - 1), "output": "o"} for size in sizes]
    made = problem(row(test_cases=tests), "p")
    assert [len(test.input) + 1 for test in made.tests] == [3, 40, 50, 5, 9]


def test_programs_are_capped_and_distinct(monkeypatch):
    monkeypatch.setattr(codecontests_plus, "MAX_PROGRAMS", 2)
    submissions = [{"code": code, "language": "PY3"} for code in ("a", "a", "b", "c")]
    assert problem(row(correct_submissions=submissions), "p").solutions == ("a", "b")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"test_cases": None}, "no tests"),
        ({"test_cases": []}, "no tests"),
        ({"test_cases": [{"input": "1", "output": " "}]}, "all expected outputs are empty"),
        (
            {"test_cases": [{"input": "1" * 5_000_000, "output": "1"}]},
            "all tests are too large",
        ),
    ],
)
def test_rows_that_cannot_be_judged_say_why(changed, reason):
    with pytest.raises(SkipRow, match=f"^{reason}$"):
        problem(row(**changed), "p")
