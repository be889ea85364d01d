"""What `python -m envs.judge_program` shows of one program on one problem."""

import io
import json

import pytest

from envs.judge_program import main
from envs.problem import Verdict

RIGHT, ADDS_TWO = "print(int(input()) + 1)", "print(int(input()) + 2)"
STATEMENT = "Print n + 1.\n\nInput\n1\nOutput\n2\n"


def row(name, tests, **columns):
    inputs, outputs = zip(*tests, strict=True)
    return {
        "name": name,
        "description": STATEMENT,
        "public_tests": {"input": [], "output": []},
        "private_tests": {"input": inputs, "output": outputs},
        "solutions": {"language": [3], "solution": [RIGHT]},
        "incorrect_solutions": {"language": [], "solution": []},
        **columns,
    }


@pytest.fixture
def judge(tmp_path, monkeypatch, capsys):
    """A function that judges a text on one of two problems: (exit status, stdout, stderr)."""
    many = [(f"{n}\n", f"{n + 1}\n") for n in range(2, 8)]
    rows = [row("increment", [("1\n", "2\n"), ("5\n", "6\n"), ("x\n", "?\n")]), row("many", many)]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def run(text, *more, problem="increment", name="answer.py"):
        arguments = [name, f"problem={problem}", "sandbox=embedded", *more]
        if name == "-":
            monkeypatch.setattr("sys.stdin", io.StringIO(text))
        else:
            (tmp_path / name).write_text(text)
            arguments[0] = str(tmp_path / name)
        capsys.readouterr()
        status = main(["task=code_contests", f"task.path={tmp_path}", *arguments])
        return status, *capsys.readouterr()

    return run


def words_of(out):
    return [line.split() for line in out.splitlines()]


def listed(out):
    """The table's rows by their input, without the number and the times, which are checked."""
    rows = {}
    for number, *words in filter(None, words_of(out)):
        if number.isdecimal() and words[0] in list(Verdict):
            assert all(0 <= float(time) < 60 for time in words[1:3])
            rows[words[4]] = [words[0], words[3], *words[5:]]
    return rows


def test_each_test_has_its_verdict_times_texts_and_whether_the_statement_shows_it(judge):
    status, out, _ = judge(RIGHT)
    assert status == 1
    assert "2 of 3 tests passed" in out and "checker  tokens" in out
    assert listed(out) == {
        "1": ["ACCEPTED", "yes", "2", "2"],
        "5": ["ACCEPTED", "no", "6", "6"],
        "x": ["RUNTIME_ERROR", "no", "?"],
    }
    assert ["exit", "status", "1"] in words_of(out)
    assert "ValueError: invalid literal" in out  # of stderr
    assert max(map(len, out.splitlines())) <= 80


def test_an_accepted_program_is_status_0_and_some_tests_are_shown_at_length(judge):
    status, out, _ = judge(RIGHT, problem="many")
    assert status == 0
    assert "ACCEPTED  6 of 6 tests passed" in out
    assert sum(words[:1] == ["got"] for words in words_of(out)) == 3


def test_failed_tests_are_shown_at_length_and_the_rest_counted(judge):
    status, out, _ = judge(ADDS_TWO, "details=1", problem="many")
    assert status == 1
    (reason,) = (words for words in words_of(out) if words[:1] == ["reason"])
    assert reason[1:4] == ["token", "1:", "expected"]
    assert "5 more failed too" in out


def test_texts_are_bounded_and_cannot_act_on_the_terminal(judge):
    prints = (
        "import sys\nfor n in range(9999): print('\\x1b[2J', n)\nprint('\\x1b', file=sys.stderr)"
    )
    status, out, _ = judge(prints)
    assert status == 1
    assert "\x1b" not in out and "⟨U+001B⟩" in out
    assert len(out) < 5000


def test_a_response_is_read_as_a_run_reads_it(judge):
    assert judge(f"Here:\n```python\n{RIGHT}\n```\n", problem="many", name="-")[0] == 0
    assert judge(f"Here:\n```python\n{RIGHT}\n```\n", problem="many", name="answer.md")[0] == 0
    status, out, _ = judge("I do not know.", name="-")
    assert status == 1 and "no program in the response" in out
    status, out, _ = judge("print(")
    assert status == 1 and "SYNTAX_ERROR" in out and "was never closed" in out


def test_tests_that_did_not_run_are_counted(judge):
    status, out, _ = judge("while True: pass", "judge.default_time_limit_s=0.05", problem="many")
    assert status == 1
    assert "TIME_LIMIT" in out
    assert "more did not run" in out  # the budget of all tests was used up
    assert judge(ADDS_TWO, "judge.early_stop=true", problem="many")[1].count("WRONG_ANSWER") == 3


def test_a_checker_program_decides(tmp_path, capsys):
    checker = "import sys\nprint(int(len(open(sys.argv[3]).read().split()) == 1))"
    cases = [{"stdin": f"{n}", "stdout": "0"} for n in range(3)]
    rows = {"text": "Print any number.", "cases": cases, "judge": checker}
    (tmp_path / "own.jsonl").write_text(json.dumps(rows))
    (tmp_path / "answer.py").write_text("print(7) if input() != '2' else print(7, 8)")
    fields = {"statement": "text", "inputs": "cases.stdin", "outputs": "cases.stdout"}
    columns = [f"task.fields.{key}={column}" for key, column in fields.items()]
    columns += ["task.fields.checker=judge", f"task.path={tmp_path / 'own.jsonl'}"]
    command = ["task=own", *columns, "problem=own", str(tmp_path / "answer.py")]
    assert main([*command, "sandbox=embedded"]) == 1
    out = capsys.readouterr().out
    assert "checker  program, in python" in out
    verdicts = {text: words[0] for text, words in listed(out).items()}
    assert verdicts == {"0": "ACCEPTED", "1": "ACCEPTED", "2": "WRONG_ANSWER"}
    assert listed(out)["2"][3:] == ["7", "8"]


MISTAKES = {
    "a name that is near others": (["problem=code_contests/incremnt"], "did you mean"),
    "a name that fits two": (["problem=m"], "2 problems match"),
    "another split's": (["split=train"], "no problem of split=train matches"),
    "two files": (["more.py"], "give one FILE"),
    "no such file": (["file=none.py"], "none.py: No such file"),
    "a key of the judge": (["judge.early=1"], "judge.KEY=VALUE"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(mistake, judge):
    more, said = MISTAKES[mistake]
    status, out, err = judge(RIGHT, *more)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_feedback_is_what_a_model_would_read(judge):
    status, out, _ = judge(ADDS_TWO, "feedback=true")
    assert status == 1 and out.startswith("Your code failed on sample 1.\n\nInput:\n```\n1\n")
    assert "Your output:\n```\n3\n```" in out and out.endswith("\nGive it another try.\n")
    status, out, _ = judge(RIGHT, "feedback=true")  # the last of the hidden tests fails
    assert (status, out) == (0, "passes all tests that the statement shows: 1\n")
    status, _, err = judge(RIGHT, "feedback=true", "task.feedback=withheld", problem="many")
    assert status == 2 and "shows none of its tests" in err
    status, _, err = judge(RIGHT, "feedback=true", "task.feedback=foreign")
    assert status == 2 and "leave task.feedback out" in err
