"""`python -m envs.validate`: what it writes and prints, and how it refuses."""

import json
import re
from pathlib import Path

import pandas
import pytest

from envs.tasks import open_task
from envs.tasks.stored import content_digests
from envs.tasks.task import task_config
from envs.validate import known_rates, main
from tests.envs.tasks.dataset_rows import every_problem

ROOT = Path(__file__).resolve().parents[2]

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


def validate(path, tmp_path, *more, cheap="cheap=false"):
    out = tmp_path / "out.jsonl"
    arguments = ["task=code_contests", f"task.path={path}", "sandbox=embedded", f"out={out}", cheap]
    arguments += more
    status = main(arguments)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return status, sorted(lines, key=lambda line: (line["kind"] != "solution", line["index"]))


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
    assert re.search(r"  reads a file \(first: line 2 of .*rows.jsonl\): 1\n", printed)
    assert "not as the data set says: 1" in printed
    assert "code_contests/increment solution 1: WRONG_ANSWER test 1" in printed


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"input_file": "in.txt"}, "nothing was judged: no row gave a problem"),
        ({}, "nothing was judged: the problems have no programs"),
    ],
)
def test_nothing_judged_is_no_success(rows, tmp_path, capsys, columns, said):
    status, lines = validate(rows(row([], [], **columns)), tmp_path)
    assert (status, lines) == (1, [])
    assert said in capsys.readouterr().out


def test_programs_of_problems_that_no_run_can_use_are_no_success(rows, tmp_path, capsys):
    status, lines = validate(rows(row([RIGHT], [], description="Print any of them.")), tmp_path)
    assert (status, len(lines)) == (1, 1)
    assert "no problem can be used: needs a checker of its own: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["task=sums"], "task.environment=envs.tasks.sums.FirstInteger: its responses are no"),
        (["task=taco", "judge.time_factor=0"], "judge.KEY=VALUE: time_factor='0'; it"),
        (["task=taco", "judge.speed=2"], "judge.KEY=VALUE: 'speed=2': write key=value"),
        (["task=mini", "task.path=a"], "unknown key 'task.path'"),
        (["task=taco", "sandbox=podman"], "sandbox='podman'; "),
        (["task=taco", "first=0"], "first='0'; it"),
        (["task=taco", "quality=a.txt"], "quality='a.txt'; it must end in .parquet or .csv"),
        (["task=taco", "path=a"], "'path=a': write key=value, with a key of"),
        (["task=taco", "task.pth=a"], "unknown key 'task.pth'"),
        (["task=taco", "task.path=/nowhere/rows.jsonl"], "task.path=/nowhere/rows.jsonl: no such"),
    ],
)
def test_mistakes_are_one_line(argv, message, capsys):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"validate: {message}") and error.count("\n") == 1


def test_what_was_judged_is_not_judged_again(rows, tmp_path, capsys):
    path = rows(row([RIGHT, WRONG], [WRONG]))
    _, first = validate(path, tmp_path)
    out = tmp_path / "out.jsonl"
    out.write_bytes(out.read_bytes()[:-20])  # a line that a kill cut in two
    _, second = validate(path, tmp_path)
    printed = capsys.readouterr().out
    assert "2 verdicts were known from" in printed
    assert [line["verdict"] for line in second] == [line["verdict"] for line in first]
    _, third = validate(path, tmp_path)
    assert third == second and "3 verdicts were known from" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_quality_of_each_problem_is_what_a_task_can_filter_on(rows, tmp_path, suffix):
    def named(name, right, wrong, **columns):
        told = {"name": name, "description": f"Print n + 1, {name}."}
        return row(right, wrong, **told | columns)

    path = rows(
        named("good", [RIGHT], [WRONG]),
        named("rejects a right one", [RIGHT, WRONG], []),
        named("accepts a wrong one", [RIGHT], [RIGHT]),
        named("untried", [], []),
        named("free", [RIGHT], [], description="Print any of them."),
    )
    quality = tmp_path / f"quality{suffix}"
    validate(path, tmp_path, f"quality={quality}")
    read = pandas.read_csv if suffix == ".csv" else pandas.read_parquet
    table = read(quality).set_index("name")
    assert table.good.to_dict() == {
        "code_contests/good": True,
        "code_contests/rejects a right one": False,
        "code_contests/accepts a wrong one": False,
        "code_contests/free": False,
    }
    columns = ["right", "right_accepted", "wrong", "wrong_accepted", "tests"]
    assert table.loc["code_contests/rejects a right one", columns].tolist() == [2, 1, 0, 0, 2]
    assert table.loc["code_contests/good", columns].tolist() == [1, 1, 1, 0, 2]
    kept_all = ["task=code_contests", f"task.path={path}", "task.min_hidden_tests=0"]
    task = open_task(task_config([*kept_all, f"task.quality={quality}"]))
    kept = [problem.name for problem in every_problem(task)]
    assert kept == ["code_contests/good"]


def test_cheap_programs_are_run_and_the_problems_that_accept_them_named(rows, tmp_path, capsys):
    shown = row([RIGHT], [WRONG], description="Print n + 1. Input 1 Output 2 Input 5 Output 6")
    constant = row(
        ["print('YES')"],
        [],
        name="constant",
        description="Print YES.",
        private_tests={"input": ["5\n"], "output": ["YES\n"]},
        public_tests={"input": ["1\n"], "output": ["YES\n"]},
    )
    more = {"input": ["5\n", "7\n"], "output": ["6\n", "8\n"]}
    strong = row([RIGHT], [], name="strong", description="Add 1 to n.", private_tests=more)
    quality = tmp_path / "quality.csv"
    path = rows(shown, constant, strong)
    status, lines = validate(path, tmp_path, f"quality={quality}", cheap="cheap=true")
    assert status == 0
    cheap = [line for line in lines if line["kind"] == "cheap"]
    assert len(cheap) == 30
    printed = capsys.readouterr().out
    assert "  code_contests/increment: samples table\n" in printed
    assert "  code_contests/constant: first output, longest sample output, YES\n" in printed
    assert "not as the data set says" not in printed
    table = pandas.read_csv(quality, keep_default_na=False).set_index("name")
    earned_by = table["earned_by"].to_dict()
    assert earned_by["code_contests/increment"] == "samples table"
    assert earned_by["code_contests/strong"] == ""
    counts = table[["good", "hidden_tests", "distinct_outputs"]].to_dict("index")
    assert {name: tuple(row.values()) for name, row in counts.items()} == {
        "code_contests/increment": (False, 0, 2),
        "code_contests/constant": (False, 1, 1),
        "code_contests/strong": (True, 2, 3),
    }


def test_right_programs_run_on_public_tests_too(rows, tmp_path, capsys):
    path = rows(row([RIGHT], []), row(["print(6)"], [], name="b", description="Print n + 1, b."))
    _, lines = validate(path, tmp_path, "public=true")
    public = {line["problem"]: line["verdict"] for line in lines if line["kind"] == "public"}
    assert public == {
        "code_contests/increment/public": "ACCEPTED",
        "code_contests/b/public": "WRONG_ANSWER",
    }
    assert "right, on public tests" in capsys.readouterr().out


def test_error_rates_are_printed_and_kept_for_runs(rows, tmp_path, capsys):
    named = {"name": "b", "description": "Print n + 1, b."}
    free = row([WRONG], [], name="c", description="Print any of them.")
    path = rows(row([RIGHT, WRONG], [WRONG]), row([RIGHT], [RIGHT], **named), free)
    limits = ["task.max_tests=40", "task.max_test_bytes=4000000"]
    validate(path, tmp_path, *limits)
    printed = capsys.readouterr().out
    right = "rejects 33.3 % [6.1, 79.2] of 3 right programs"
    assert f"the judge {right} and accepts 50.0 % [9.5, 90.5] of 2 wrong programs\n" in printed
    assert "rejects 100.0 % [20.7, 100.0] of 1 right programs (problem needs a checker)" in printed
    version = json.loads((tmp_path / "out.jsonl").read_text().partition("\n")[0])["judge"]
    keep_all = "task.min_hidden_tests=0"
    task = open_task(task_config(["task=code_contests", f"task.path={path}", keep_all]))
    digests = [digest for split in task.splits().values() for digest in content_digests(split)]
    rates = known_rates(digests, version)
    counts = ("right", "right_rejected", "wrong", "wrong_accepted")
    assert [rates[key] for key in counts] == [3, 1, 2, 1]
    assert rates["measured_problems"] == 2 and rates["false_accepts"][0] == 0.5
    unknown = known_rates(digests, "another")
    assert unknown["measured_problems"] == 0 and unknown["false_rejects"] is None
