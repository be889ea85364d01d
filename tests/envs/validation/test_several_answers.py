"""Signs of several right answers in the verdicts on a problem's own programs."""

import pytest

from envs.judge.checkers import check
from envs.problem import Judgement, Problem, Test, Verdict
from envs.validation.several_answers import AnswerEvidence

EXPECTED = "3\n1 2 3\n"
AGAIN = "3\n2 3 1\n"
REORDERED, OTHER_COUNT, LONGER = "3\n3 2 1\n", "2\n1 2 3\n", "3\n1 2 3 4\n"
RIGHT, WRONG = True, False


def evidence(programs, expected=EXPECTED):
    """The evidence of programs, given as (label, output)."""
    problem = Problem("p", "", (), (Test("", expected),))
    found = AnswerEvidence()
    for right, output in programs:
        accepted, difference = check("tokens", expected, output)
        verdict = Verdict.ACCEPTED if accepted else Verdict.WRONG_ANSWER
        detail = "" if accepted else f"test 0: {difference}"
        found.add(problem, right, Judgement(verdict, int(accepted), 1, 1, "", detail=detail))
    return found.line()


@pytest.mark.parametrize(
    ("programs", "signs"),
    [
        ([(RIGHT, EXPECTED)] * 3 + [(WRONG, OTHER_COUNT)], []),
        ([(RIGHT, EXPECTED), (RIGHT, REORDERED)], ["1 of 2 right programs answer otherwise"]),
        (
            [(RIGHT, REORDERED), (RIGHT, AGAIN)],
            ["all 2 right programs answer otherwise, and differ"],
        ),
        ([(RIGHT, REORDERED)] * 2, []),  # they agree: the expected output is in doubt
        ([(RIGHT, OTHER_COUNT)], []),  # one that is rejected is only an exception
        ([(WRONG, REORDERED)] * 2, []),
        (
            [(WRONG, REORDERED)] * 3 + [(WRONG, OTHER_COUNT)] * 3,
            ["3 of 6 wrong answers agree in the first line and the number of tokens"],
        ),
        ([(WRONG, REORDERED)] * 3 + [(WRONG, OTHER_COUNT)] * 4, []),
        ([(WRONG, LONGER)] * 5, []),
    ],
)
def test_signs_of_several_answers(programs, signs):
    line = evidence(programs)
    assert bool(line) == bool(signs) and all(sign in line for sign in signs)


def test_the_example_is_a_right_programs_answer():
    line = evidence([(WRONG, REORDERED)] * 3 + [(RIGHT, OTHER_COUNT), (RIGHT, EXPECTED)])
    assert line.endswith("e.g. test 0: token 1: expected '3', found '2'")


def test_a_single_line_is_no_first_line():
    assert evidence([(WRONG, "3 1")] * 9, expected="3 2") == ""
