"""open-r1's Codeforces rows: hidden tests, checkers, ratings, and what is refused."""

import pytest

from envs.problem import CheckerProgram, Test
from envs.tasks.loaders.codeforces import problem
from envs.tasks.parsers import SkipRow
from tests.envs.tasks.contest_rows import codeforces


def test_columns():
    made = problem(codeforces(7, note="Mind the sign."), "codeforces/00003")
    assert made.name == "codeforces/7/A"
    assert made.samples == (Test("1 2", "3"),)
    assert made.tests == (*made.samples, *(Test(f"{t}\n", f"{s}\n") for t, s in OTHERS))
    assert made.statement.endswith(
        "Input\n\nTwo integers.\n\nOutput\n\nTheir sum.\n\nNote\n\nMind the sign."
    )
    assert (made.rating, made.date, made.tags) == (800, "2017-09-03", ("math",))
    assert (made.time_limit_s, made.memory_limit_mb) == (1.0, 256)
    assert (made.checker, made.checker_program) == ("tokens", None)


OTHERS = (("5 7", 12), ("10 -4", 6), ("0 0", 0))


def test_a_checker_is_carried_and_marks_the_problem():
    made = problem(codeforces(generated_checker="print(1)"), "p")
    assert made.checker == "program"
    assert made.checker_program == CheckerProgram("python", "print(1)")
    assert made.hash != problem(codeforces(generated_checker="print(0)"), "p").hash


def test_an_official_copy_of_a_sample_with_another_output_proves_several_answers():
    copies = [{"input": "1 2\r\n", "output": "4\r\n"}, {"input": "2 2", "output": "4"}]
    assert problem(codeforces(official_tests=copies), "p").checker == "needs_checker"


SAMPLE_ONLY = [{"input": "1  2\r\n", "output": "3\r\n"}]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"official_tests": []}, "no tests but the statement's samples"),
        ({"official_tests": None}, "no tests but the statement's samples"),
        ({"official_tests": SAMPLE_ONLY}, "no tests but the statement's samples"),
        (
            {"official_tests": [{"input": None, "output": "3"}]},
            "no tests but the statement's samples",
        ),
        ({"interaction_format": "Print a query."}, "interactive"),
        ({"input_mode": "file"}, "reads input.txt and writes output.txt"),
        ({"executable": False}, "no program was ever run on its tests"),
    ],
)
def test_rows_that_cannot_be_judged_say_why(changed, reason):
    with pytest.raises(SkipRow, match=f"^{reason}$"):
        problem(codeforces(**changed), "p")


def test_what_a_row_does_not_say():
    absent = dict.fromkeys(("rating", "contest_start", "time_limit", "memory_limit", "tags"))
    made = problem(codeforces(**absent), "p")
    assert (made.rating, made.date, made.tags) == (None, "", ())
    assert (made.time_limit_s, made.memory_limit_mb) == (None, None)
