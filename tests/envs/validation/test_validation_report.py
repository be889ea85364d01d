"""The report on judged programs, where a checker program decides."""

from envs.cheap_programs import CHEAP_PROGRAMS
from envs.hidden_tests import measure_strength
from envs.problem import CheckerProgram, Judgement, Problem, Test, Verdict
from envs.validation.labelled_programs import CHEAP, LabelledProgram
from envs.validation.validation_report import Report

CHECKED = Problem(
    "p",
    "",
    (),
    tuple(Test(f"{n}", f"3\n{n} 2 1\n") for n in range(3)),
    "program",
    checker_program=CheckerProgram("python", "print(1)"),
)


def report_of(problem, *judged):
    report = Report()
    for kind, verdict, detail in judged:
        labelled = LabelledProgram(problem, kind, 0, "", False, "", measure_strength(problem))
        report.add(labelled, Judgement(verdict, 0, 3, 1, "", detail=detail))
    return report


def test_nothing_is_computed_of_cheap_programs_where_a_checker_program_decides():
    report = report_of(
        CHECKED, (CHEAP, Verdict.ACCEPTED, ""), (CHEAP, Verdict.INFRA_ERROR, "the checker fails")
    )
    assert report.earned == {(False, "p"): [CHEAP_PROGRAMS[0]]}
    assert report.exceptions == [f"p {CHEAP_PROGRAMS[0]!r}: INFRA_ERROR the checker fails"]


def test_signs_of_several_answers_are_not_looked_for_where_a_checker_program_decides():
    other = "test 0: token 2: expected '0', found '9'"
    judged = [("solution", Verdict.ACCEPTED, ""), ("solution", Verdict.WRONG_ANSWER, other)]
    assert not report_of(CHECKED, *judged).answers
    compared = Problem(CHECKED.name, "", (), CHECKED.tests)
    assert "1 of 2 right programs" in report_of(compared, *judged).answers["p"].line()
