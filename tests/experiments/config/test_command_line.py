"""The command line in run.json: it can be typed again, and holds no secrets."""

import shlex

import pytest
from experiments.config.command_line import (
    command_line,
    command_text,
    note_command_line,
)

from experiments.config.composition import config_of, jobs_of


def test_it_is_as_typed_and_quoted(monkeypatch):
    monkeypatch.setenv("SPO_BENCH_COMMAND", "of another process")
    words = ["algo=spo,ppo", "eval.k=[1,2]", 'task.path="a b"', "train.micro_tokens=4096"]
    note_command_line(["/home/me/tree/run.py", "-m", *words])
    assert command_line() == (
        "python run.py -m algo=spo,ppo 'eval.k=[1,2]' 'task.path=\"a b\"' train.micro_tokens=4096"
    )
    assert shlex.split(command_line())[3:] == words
    note_command_line(["/usr/bin/spo-bench", "seed=1"])
    assert command_line() == "spo-bench seed=1"
    monkeypatch.delenv("SPO_BENCH_COMMAND")
    assert command_line().startswith("python ")  # a program that calls the trainer


@pytest.mark.parametrize(
    "word",
    [
        *("+wandb.api_key=abcdef", "hub_token=1", "db.password=x", "AUTH=secret"),
        *("x=hf_abcdefghijklmnopqrst", "task.path=https://me:pass@host/rows.jsonl"),
        "name=from-the-environment",
    ],
)
def test_secrets_are_hidden(word, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "from-the-environment")
    shown = command_text([word])
    assert "***" in shown
    _, _, secret = word.partition("=")
    assert secret not in shown and "pass@" not in shown


def test_a_pinned_data_set_is_no_secret():
    word = "task.path=hf://datasets/google/mbpp@4bb6404fdc6cacfda99d4ac4205087b89d32030c"
    assert command_text([word]) == word


def test_a_run_may_start_from_several_experiments():
    """As an arm of a study does; each later one decides."""
    (job,) = jobs_of(["experiment=[sft,quick]"])
    assert config_of(job).steps == config_of(["experiment=quick"]).steps
    assert config_of(job).algo.name == "sft"
