"""Every `python -m` command of the project has --help: quick, with a sentence for each key."""

import re
from pathlib import Path

import pytest

from tests.many_commands import answers

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("algorithms", "analysis", "envs", "experiments")
INTERNAL = ("envs/sandbox/inside", "experiments/benchmarks/judge_probe.py")  # no one types these


def commands():
    for file in sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if 'if __name__ == "__main__":' in file.read_text() and not path.startswith(INTERNAL):
            yield path.removesuffix(".py").removesuffix("/__main__").replace("/", ".")


@pytest.fixture(scope="module")
def helps(tmp_path_factory):
    """What each command answers to --help."""
    asked = [(["-m", command, "--help"], None) for command in commands()]
    found = answers(asked, tmp_path_factory.mktemp("help"))
    return dict(zip(commands(), found, strict=True))


def test_commands_are_found():
    assert {"algorithms", "analysis.report", "envs.show", "experiments.nano"} <= set(commands())


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_has_help_with_a_sentence_for_each_key(command, helps):
    answer = helps[command]
    assert (answer["status"], answer["err"], answer["heavy"]) == (0, "", [])
    text = answer["out"]
    assert len(text.splitlines()[0]) > 20  # what the command does
    for line in text.partition("Keys, written key=value:")[2].splitlines():
        assert not re.fullmatch(r"  \S+=\S* +(\(required\) +)?\[[^]]*\]", line), line
