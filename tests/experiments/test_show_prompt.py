"""A prompt is shown as the model reads it, with the limit that decides whether it is kept."""

import shutil

import pytest

from experiments.show_prompt import main

NANO = "assets/nano"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def test_a_prompt_is_in_its_chat_template_with_its_special_tokens(capsys):
    assert main(["task=mini", "problem=mini/choose/0003", f"model={NANO}"]) == 0
    shown = capsys.readouterr().out
    assert "mini/choose/0003" in shown.splitlines()[0]
    assert "<|bos|><|user|>" in shown and "<|assistant|>" in shown
    assert "tokens, within task.max_prompt_tokens=256" in shown
    assert "the model's chat template; the end token is '<|eos|>'" in shown


def test_one_that_a_run_would_drop_is_shown_and_said_so(capsys):
    assert main(["task=mini", "task.max_prompt_tokens=20", "task.chat=false"]) == 0
    shown = capsys.readouterr().out
    assert "mini/train/0000" in shown.splitlines()[0]
    assert "tokens, beyond, so a run drops it: task.max_prompt_tokens=20" in shown
    assert "no chat template" in shown and "<|user|>" not in shown


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% if %}", ", line 1: Expected an expression"),
        ("{{ x.y }}", ": UndefinedError: 'x' is undefined; mend it, or set task.chat=false"),
    ],
)
def test_a_broken_chat_template_is_one_line(template, said, capsys, tmp_path):
    shutil.copytree(NANO, tmp_path / "mine")
    (tmp_path / "mine" / "chat_template.jinja").write_text(template)
    assert main(["task=mini", f"model={tmp_path}/mine"]) == 2
    printed = capsys.readouterr()
    begin = f"error: model.path={tmp_path}/mine: the chat template in chat_template.jinja{said}"
    assert printed.err.startswith(begin) and printed.err.count("\n") == 1, printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["problem=mini/nothing"], "error: problem=mini/nothing: no problem matches"),
        (["task=minni"], "error: task=minni: no such choice"),
        (["model.path=/nowhere"], "error: model.path=/nowhere: "),
        (["model.path=bare"], "error: model.path=bare: no tokenizer in this folder; save one "),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text('{"model_type": "llama"}')
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith(message)
