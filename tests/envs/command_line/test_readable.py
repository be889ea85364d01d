"""Text of programs and data sets does nothing where it is shown."""

import io
import json
from collections import Counter

import pytest
from rich.console import Console

from envs.judge.grading import grade, summarize
from envs.problem import Problem, Test
from envs.readable import UNSAFE, readable
from envs.sandbox.base import Execution, Outcome
from envs.show import main
from envs.validate import Report, show
from experiments.run_dir.loggers import _as_code

# A window's title, a colour by a C1 control, a line begun anew, directions turned, and more.
HOSTILE = "\x1b]0;owned\x07\x9b31m\rover\u202eback\u2066\u2069\u200b\x00\x08\x7f\u2028end"
SAFE = (
    "⟨U+001B⟩]0;owned⟨U+0007⟩⟨U+009B⟩31m⟨U+000D⟩over⟨U+202E⟩back⟨U+2066⟩⟨U+2069⟩⟨U+200B⟩"
    "⟨U+0000⟩⟨U+0008⟩⟨U+007F⟩⟨U+2028⟩end"
)


def test_characters_that_act_are_named():
    assert readable(HOSTILE) == SAFE
    ordinary = "a\tb\nüé 你好 🎉 |`<b>"
    assert readable(ordinary) == ordinary


def test_a_long_line_is_cut():
    assert readable("\x1b" * 10_000_000, 3) == "⟨U+001B⟩" * 3 + "… (10000000 characters)"
    assert readable("abc", 3) == "abc"


@pytest.mark.parametrize("outcome", [Outcome.RUNTIME_ERROR, Outcome.SYNTAX_ERROR])
def test_a_verdicts_message_holds_no_such_character(outcome):
    problem = Problem("p", "", (), (Test("", "1"),))
    execution = Execution(outcome, b"", stderr=f"Traceback\n{HOSTILE}\n" + "x" * 3000 + HOSTILE)
    found, *_ = summarize(problem, "", [grade("tokens", "1", 1.0, execution)], [0], early_stop=True)
    assert found.detail.endswith(SAFE)
    assert not UNSAFE.search(found.detail)


def test_a_wrong_answers_message_holds_no_such_character():
    problem = Problem("p", "", (), (Test("", "1"),))
    execution = Execution(Outcome.FINISHED, HOSTILE.replace("\r", "").encode())
    found, *_ = summarize(problem, "", [grade("tokens", "1", 1.0, execution)], [0], early_stop=True)
    assert "owned" in found.detail
    assert not UNSAFE.search(found.detail)


def test_show_prints_no_such_character(tmp_path, capsys):
    held = json.dumps({"inputs": [HOSTILE, "y" * 10_000_000], "outputs": [HOSTILE, "2\n"]})
    row = {
        "question": f"{HOSTILE} Print.",
        "input_output": held,
        "name": f"odd {HOSTILE}",
        "solutions": json.dumps([f"print('{HOSTILE}')"]),
        "source": HOSTILE,
    }
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    for arguments in ((), ("problem=odd",), ("problem=nothing",)):
        main(["task=taco", f"task.path={file}", "task.train_problems=null", *arguments])
        for text in capsys.readouterr():
            assert len(text) < 100_000
            assert not UNSAFE.search(text), ascii(UNSAFE.search(text))


def test_validate_lists_no_such_character():
    out = io.StringIO()
    report = Report(disagreements=[f"odd {HOSTILE}: WRONG_ANSWER {'z' * 10_000_000}"])
    show(report, Counter({f"odd {HOSTILE}": 1}), Console(file=out, width=200))
    assert "owned" in out.getvalue()
    assert len(out.getvalue()) < 20_000
    assert not UNSAFE.search(out.getvalue())


def test_loggers_are_given_no_such_character():
    assert _as_code(f"a\n{HOSTILE}") == f"    a\n    {SAFE}"
