"""docs/reference/errors.md is true: each command ends with its status and says its line."""

import shlex

import pytest

from tests.errors_page import LATER, rows
from tests.many_commands import CIRCUMSTANCES, answers

ROWS = [row for row in rows() if row.section != LATER]
GOES_ON = "goes on"  # the status of a run that is warned


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Each row's answer: all commands run in one process."""
    commands = []
    for row in ROWS:
        python, *words = shlex.split(row.command)
        assert python == "python"
        words = ["check", *words[1:]] if row.status == GOES_ON else words
        commands.append((words, row.mistake if row.mistake in CIRCUMSTANCES else None))
    return dict(zip(ROWS, answers(commands, tmp_path_factory.mktemp("errors")), strict=True))


def test_forty_mistakes_are_on_the_page():
    assert len({row.command for row in ROWS}) >= 40
    assert set(CIRCUMSTANCES) <= {row.mistake for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.command.removeprefix("python "))
def test_a_mistake_is_the_line_of_the_page_and_early(row, found):
    answer = found[row]
    printed = answer["out"] + answer["err"]
    assert printed.count("\n") == 1, printed
    assert row.fits(printed.removesuffix("\n")), printed
    assert answer["status"] == (0 if row.status == GOES_ON else int(row.status))
    assert answer["heavy"] == []  # such as torch, which takes seconds
    assert answer["cpu_s"] < 3
