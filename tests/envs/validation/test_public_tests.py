"""`python -m envs.validation.public_tests`: what it counts, what it judges, and how it refuses."""

import json

import pytest

from envs.validation.public_tests import main

RIGHT, WRONG = "print(int(input()) + 1)", "print(0)"


def row(name, right, wrong, samples=(("1\n", "2\n"),), statement="Print n + 1"):
    def programs(sources):
        return {"language": [3] * len(sources), "solution": sources}

    return {
        "name": name,
        "description": f"{statement}, {name}.",
        "public_tests": {"input": [i for i, _ in samples], "output": [o for _, o in samples]},
        "private_tests": {"input": ["5\n", "7\n"], "output": ["6\n", "8\n"]},
        "solutions": programs(right),
        "incorrect_solutions": programs(wrong),
    }


@pytest.fixture
def counted(tmp_path, capsys):
    """The exit status and the printed lines for rows."""

    def of(rows, *more):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        status = main(["task=code_contests", f"task.path={path}", "sandbox=embedded", *more])
        return status, capsys.readouterr().out.splitlines()

    return of


ROWS = [
    row("good", [RIGHT, WRONG], [WRONG, RIGHT]),
    row("two", [WRONG], [RIGHT], samples=(("1\n", "2\n"), ("3\n", "4\n"))),
    row("found", [], [WRONG], samples=(), statement="Print n + 1. Input 5 Output 6"),
    row("blind", [RIGHT], [WRONG], samples=()),
]


def test_the_first_programs_are_judged_by_the_tests_that_the_statement_shows(counted):
    observation = (
        "Your code failed on sample 1.\n\nInput:\n```\n{}\n```\n\nExpected output:\n```\n{}\n```"
        "\n\nYour output:\n```\n0\n```\n\nGive it another try."
    )
    length = len(observation.format(1, 2))
    status, lines = counted(ROWS)
    assert status == 0
    assert lines == [
        "4 problems, 2 with samples, 3 with public tests (1.3 each)",
        "first right programs that pass them: 1 of 2",
        "  code_contests/two",
        "first wrong programs that fail them: 2 of 3; their observations have "
        f"{length} characters on average, at most {length}",
    ]


def test_the_number_of_judged_programs_is_bounded(counted):
    assert counted(ROWS, "programs=0") == (0, counted(ROWS)[1][:1])
    _, lines = counted(ROWS, "programs=1", "task.feedback=withheld")
    assert lines[1].endswith(" of 1") and " of 1" in lines[-1]
    blind = ["1 problems, 0 with samples, 0 with public tests"]
    assert counted(ROWS[3:]) == (0, blind)


def test_a_mistake_is_one_line(capsys):
    assert main(["task=code_contests", "task.path=/nowhere.jsonl"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("public_tests: ") and error.count("\n") == 1
