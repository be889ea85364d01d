"""`python -m envs.prepare`: what it prints, and that it says what it cannot do in one line."""

import json

from envs.prepare import main
from tests.envs.tasks.contest_rows import codeforces
from tests.envs.tasks.dataset_rows import code_contests_row, taco_row, write


def test_it_says_where_every_row_went(tmp_path, capsys):
    train = write(tmp_path / "cc.jsonl", [code_contests_row(i, f"P{i}") for i in range(30)])
    test = write(tmp_path / "taco.jsonl", [taco_row(3), taco_row(50, input_output="")])
    assert main(["task=paper", f"task.path={train}", f"task.test_path={test}"]) == 0
    printed = capsys.readouterr().out
    assert "32 rows read" in printed
    assert "left out: input_output is empty" in printed
    assert f"left out, input_output is empty: first in line 2 of {test}" in printed
    assert "code_contests/P3 of " in printed
    said = "left out: taco/00000@taco of test has nearly the same statement (similarity 1.0"
    assert said in printed and "task.decontaminate=false keeps them" in printed


def test_it_says_licence_sizes_and_what_a_checker_leaves_out(tmp_path, capsys):
    rows = [codeforces(i, rating=800 + i) for i in range(20)]
    rows += [codeforces(20, generated_checker="print(1)"), codeforces(21, official_tests=[])]
    file = write(tmp_path / "rows.jsonl", rows)
    assert main(["task=codeforces", f"task.path={file}", "task.max_rating=809"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for said in (
        "22 rows read",
        "rows │ number │ tests │ MB",
        "with a checker program (python) │ 1",
        "left out: no tests but the statement's samples │ 1",
        "left out: not of task.max_rating │ 10",
        "licence: CC-BY-4.0",
    ):
        assert said in printed.replace("┃", "│")
    assert main(["task=codeforces", f"task.path={file}", "task.checkers=false"]) == 0
    printed = capsys.readouterr().out.replace("┃", "│")
    said = "left out: has a checker program (task.checkers=false) │ 1"
    assert said in " ".join(printed.split()) and "with a checker" not in printed
    assert main(["task=livecodebench", f"task.path={tmp_path}/none.jsonl"]) == 2


def test_it_says_that_a_function_is_not_named(tmp_path, capsys):
    row = {"text": "Add.", "args": [[1, 2], [5, 5]], "out": [3, 10], "entry": "add"}
    row["right"] = ["def add(a, b):\n    return a + b"]
    file = write(tmp_path / "rows.jsonl", [row])
    given = [f"task.fields.{key}" for key in ("statement=text", "inputs=args", "outputs=out")]
    given += [f"task.path={file}", "task=own"]
    assert main(given) == 0
    assert "NOTE: inputs such as [1, 2] are read as lines of stdin, but entry of the same row " in (
        printed := capsys.readouterr().out
    )
    assert "'add'; if they are its arguments, add task.fields.fn_name=entry\n" in printed
    assert main([*given, "task.fields.fn_name=entry"]) == 0
    assert "are read as lines" not in capsys.readouterr().out


def test_it_says_which_splits_are_empty(tmp_path, capsys):
    for number, name in enumerate(("train", "valid", "test")):
        rows = [taco_row(10 * number + i) for i in range(1 + 9 * (name == "train"))]
        write(tmp_path / f"{name}.jsonl", rows)
    assert main(["task=taco", f"task.path={tmp_path}"]) == 0
    assert "NOTE: no problem is in tune; a run needs train" in capsys.readouterr().out
    write(tmp_path / "choose.jsonl", [taco_row(30)])
    assert main(["task=taco", f"task.path={tmp_path}"]) == 0
    assert "NOTE: no problem" not in capsys.readouterr().out


def test_mistakes_are_one_line(tmp_path, capsys):
    broken = tmp_path / "rows.parquet"
    broken.write_text(json.dumps(taco_row(0)))
    for arguments, said in {
        ("task=taco", "task.path=/nowhere"): "task.path=/nowhere: no such file",
        ("task=taco", f"task.path={broken}"): "not a whole .parquet file",
        ("task=taco", "task.pth=x"): "unknown key 'task.pth'; did you mean 'task.path'? keys of",
        ("task=own", "task.fields.tiem_limit=x"): "unknown key 'task.fields.tiem_limit'; did you "
        "mean 'task.fields.time_limit'? keys of task.fields: statement, inputs",
        ("task=own", "task.fields.name.x=y"): "did you mean 'task.fields.name'?",
        ("algo=spo",): "write task=NAME",
        ("task=taco", "task.max_tests=many"): "max_tests",
    }.items():
        assert main(list(arguments)) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1
