"""What `python -m envs.show` prints, and what it says of a name that fits nothing."""

import json

from envs.show import main


def test_a_problem_with_its_prompt_and_tests(capsys):
    assert main(["task=mini", "problem=mini/test/0003"]) == 0
    out = capsys.readouterr().out
    assert "mini/test/0003" in out and "checker" in out
    assert "time limit  1 s" in out and "memory  the judge's default" in out
    assert "prompt" in out and "expected output" in out and "a right program" in out


def test_without_a_name_the_splits_are_listed(tmp_path, capsys):
    held = json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]})
    rows = [{"question": f"Print number {i}.", "input_output": held} for i in range(30)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, [*rows, {"question": "?", "input_output": ""}])))
    assert main(["task=taco", f"task.path={file}"]) == 0
    out = capsys.readouterr().out
    assert "train: " in out and "test: " in out
    assert "left out, input_output is empty: 1 (first: line " in out
    assert "near-duplicates of other splits' problems are listed" in out
    assert main(["task=taco", f"task.path={file}", "task.decontaminate=false"]) == 0
    assert "near-duplicates" not in capsys.readouterr().out


def test_mistakes_are_one_line(capsys):
    for argument, said in {
        "problem=nothing": "no problem matches; for example mini/",
        "problem=mini/test": "200 problems match",
        "problm=x": "write key=value, with a key of task, task.KEY, problem",
        "task=leetcode": "leetcode",
    }.items():
        assert main([argument]) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1
