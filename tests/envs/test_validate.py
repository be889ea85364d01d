"""`python -m envs.validate`: what it writes and prints, and how it refuses."""

import json
import os
from pathlib import Path

import pytest

from envs.validate import Arguments, UsageError, main, parse

DATA = Path(os.environ.get("SPO_BENCH_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data rows in {DATA}")

RIGHT, WRONG = "print(int(input()) + 1)", "print(2)"


def row(right, wrong, **columns):
    return {
        "name": "increment",
        "description": "Print n + 1.",
        "public_tests": {"input": ["1\n"], "output": ["2\n"]},
        "private_tests": {"input": ["5\n"], "output": ["6\n"]},
        "solutions": {"language": [3] * len(right), "solution": right},
        "incorrect_solutions": {"language": [3] * len(wrong), "solution": wrong},
        **columns,
    }


@pytest.fixture
def rows(tmp_path):
    def write(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return path

    return write


def validate(path, tmp_path, *more):
    out = tmp_path / "out.jsonl"
    arguments = ["task=code_contests", f"task.path={path}", "sandbox=embedded", f"out={out}", *more]
    status = main(arguments)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return status, lines


def test_each_program_has_a_line(rows, tmp_path, capsys):
    path = rows(row([RIGHT, WRONG], [WRONG]), row([], [], input_file="in.txt"))
    status, lines = validate(path, tmp_path)
    assert status == 0
    told = [(line["kind"], line["index"], line["verdict"], line["passed"]) for line in lines]
    assert told == [
        ("solution", 0, "ACCEPTED", 2),
        ("solution", 1, "WRONG_ANSWER", 1),
        ("incorrect", 0, "WRONG_ANSWER", 1),
    ]
    for line in lines:
        assert line["problem"] == "code_contests/increment"
        assert line["total"] == 2
        assert line["cpu_s"] > 0
    printed = capsys.readouterr().out
    assert "rows skipped, reads a file: 1" in printed
    assert "not as the data set says: 1" in printed
    assert "code_contests/increment solution 1: WRONG_ANSWER test 1" in printed
    assert "programs/s" in printed


def test_a_marked_problem_is_reported_apart(rows, tmp_path, capsys):
    free = row([RIGHT, WRONG], [], description="Print any number above n.\nPrint any of them.")
    status, lines = validate(rows(free), tmp_path)
    assert status == 0
    assert [(line["verdict"], line["needs_checker"]) for line in lines] == [
        ("ACCEPTED", True),
        ("WRONG_ANSWER", True),
    ]
    assert "not as the data set says" not in capsys.readouterr().out


def test_first_takes_so_many_programs_of_each_kind(rows, tmp_path):
    _, lines = validate(rows(row([RIGHT, WRONG], [WRONG, RIGHT])), tmp_path, "first=1")
    assert [(line["kind"], line["index"]) for line in lines] == [("solution", 0), ("incorrect", 0)]


def test_arguments():
    assert parse(["task=taco", "task.path=a.jsonl"]) == Arguments("taco", Path("a.jsonl"))
    given = parse(["task=apps", "task.path=a", "sandbox=docker", "first=3", "out=b"])
    assert given == Arguments("apps", Path("a"), "docker", 3, Path("b"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "task=: must be one of taco, code_contests, apps"),
        (["task=mini", "task.path=a"], "task=mini: must be one of"),
        (["task=taco"], "task.path=FILE is missing"),
        (["task=taco", "task.path=a", "sandbox=podman"], "sandbox=podman: must be one of"),
        (["task=taco", "task.path=a", "first=0"], "first=0: must be a whole number above 0"),
        (["task=taco", "task.path=a", "first=x"], "first=x: must be"),
        (["task=taco", "path=a"], "'path=a': write key=value, with a key of task, task.path"),
        (["--help"], "'--help': write key=value"),
    ],
)
def test_wrong_arguments_are_named(argv, message):
    with pytest.raises(UsageError, match=message):
        parse(argv)


@pytest.mark.parametrize("path", ["/nowhere/rows.jsonl", "/nowhere/rows.csv"])
def test_what_cannot_be_read_is_one_line(path, capsys):
    assert main(["task=taco", f"task.path={path}", "sandbox=embedded"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("validate: ")
    assert path in error
    assert error.count("\n") == 1


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "name", "first", "right", "wrong"),
    [
        ("taco", "taco_stdin", 1, 400, 0),
        ("code_contests", "code_contests_test", 1, 7, 0),
        ("code_contests", "code_contests_olympiad", 1, 20, 7),
        ("apps", "apps_stdin_with_wrong", 2, 17, 48),
    ],
)
def test_real_programs_are_judged_as_the_data_say(tmp_path, task, name, first, right, wrong):
    out = tmp_path / "out.jsonl"
    where = [f"task={task}", f"task.path={DATA / name}.jsonl", f"first={first}", f"out={out}"]
    assert main([*where, "sandbox=embedded"]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == right + wrong
    odd = [
        line
        for line in lines
        if not line["needs_checker"]
        and (line["verdict"] == "ACCEPTED") != (line["kind"] == "solution")
    ]
    assert odd == []


@needs_data
@pytest.mark.slow
def test_the_float_and_case_rules_recover_what_an_exact_judge_rejects(tmp_path):
    out = tmp_path / "out.jsonl"
    path = DATA / "taco_special_judge.jsonl"
    assert main(["task=taco", f"task.path={path}", "sandbox=embedded", f"out={out}"]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    marked = [line for line in lines if line["needs_checker"]]
    recovered = [line for line in lines if line["verdict"] == "ACCEPTED"]
    assert (len(lines), len(marked), len(recovered)) == (60, 41, 17)
