"""What `python -m envs.show` prints, and what it says of a name that fits nothing."""

import json

import pytest

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
    file.write_text(json.dumps({"question": "?", "input_output": ""}))
    assert main(["task=taco", f"task.path={file}"]) == 1
    assert "no problem can be used" in capsys.readouterr().out


def test_mistakes_are_one_line(capsys):
    for argument, said in {
        "problem=nothing": "no problem matches; for example mini/",
        "problem=mini/test": "200 problems match",
        "problm=x": "did you mean 'problem'? write key=value",
        "task=leetcode": "leetcode",
    }.items():
        assert main([argument]) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1


@pytest.fixture
def sums(tmp_path):
    """A data set of one problem, which shows its first test."""
    tests = {"inputs": ["1 2\n", "5 6\n"], "outputs": ["3\n", "11\n"]}
    row = {"question": "Add. Input 1 2 Output 3", "input_output": json.dumps(tests)}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(row))
    return ["task=taco", f"task.path={rows}", "problem=taco/00000", "sandbox=embedded"]


def judged(tmp_path, sums, program, *more):
    (tmp_path / "answer.py").write_text(program)
    return main([*sums, str(tmp_path / "answer.py"), *more])


def test_a_program_is_judged_test_by_test(tmp_path, sums, capsys):
    assert judged(tmp_path, sums, "print(sum(map(int, input().split())))") == 0
    out = capsys.readouterr().out
    assert out.startswith("ACCEPTED  2 of 2 tests passed") and "yes" in out and "no" in out
    assert judged(tmp_path, sums, "print(3)") == 1
    assert capsys.readouterr().out.startswith("WRONG_ANSWER  1 of 2 tests passed")
    assert judged(tmp_path, sums, "print(3") == 1
    assert "SYNTAX_ERROR" in capsys.readouterr().out
    (tmp_path / "answer.txt").write_text("I think\n```python\nprint(3)\n```\n")
    assert main([*sums, str(tmp_path / "answer.txt")]) == 1


def test_the_observation_of_a_program_is_printed(tmp_path, sums, capsys):
    assert judged(tmp_path, sums, "print(4)", "feedback=true") == 1
    out = capsys.readouterr().out
    assert "1 2" in out and "3" in out and "4" in out and "11" not in out
    assert judged(tmp_path, sums, "print(3)", "feedback=true") == 0
    assert "passes all tests that the statement shows: 1" in capsys.readouterr().out
    assert judged(tmp_path, sums, "print(3)", "feedback=true", "task.feedback=foreign") == 2
    assert main([*sums, "nowhere.py"]) == 2 and main(["task=mini", "nowhere.py"]) == 2
