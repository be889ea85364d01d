"""Every `python -m` command of the project has --help, with a sentence for each key."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("algorithms", "analysis", "envs", "experiments")
INTERNAL = ("envs/sandbox/inside", "experiments/benchmarks/judge_probe.py")  # no one types these


def commands():
    for file in sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if 'if __name__ == "__main__":' in file.read_text() and not path.startswith(INTERNAL):
            yield path.removesuffix(".py").removesuffix("/__main__").replace("/", ".")


def help_of(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    try:
        runpy.run_module(command, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_commands_are_found():
    assert {"algorithms", "analysis.report", "envs.show", "experiments.nano"} <= set(commands())


@pytest.mark.parametrize("command", list(commands()))
@pytest.mark.filterwarnings("ignore:.*found in sys.modules.*:RuntimeWarning")
def test_every_command_has_help_with_a_sentence_for_each_key(command, monkeypatch, capsys):
    text = help_of(command, monkeypatch, capsys)
    assert len(text.splitlines()[0]) > 20  # what the command does
    for line in text.partition("Keys, written key=value:")[2].splitlines():
        assert not re.fullmatch(r"  \S+=\S* +(\(required\) +)?\[[^]]*\]", line), line
