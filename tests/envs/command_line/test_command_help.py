"""Help of a command: a line for each key, from the dataclass's annotations and comments."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from envs.command_line.field_docs import field_comments, field_docs
from pydantic import Field, PositiveInt

from envs.command_line import key_lines, opening_sentence, parse_arguments, print_help


@dataclass
class Inner:
    # a comment above,
    # in two lines
    low: float = 0.5


@dataclass
class Base:
    out: Path  # where it goes
    first: PositiveInt | None = None  # how many; "#" is no comment here


@dataclass
class Options(Base):
    first: PositiveInt | None = 3

    # This heads a group of keys, and describes none.

    # auto: the best
    kind: Literal["auto", "none"] = field(default="auto", metadata={"a": 1})  # beside the last line
    share: Annotated[float, Field(gt=0, le=1)] = 0.5  # inside parentheses
    date_from: Annotated[str | None, Field(alias="from")] = None  # a day
    names: list[str] = field(default_factory=lambda: ["a", "b"])
    inner: Inner = field(default_factory=Inner)


def test_a_field_is_described_by_its_comment_in_the_source():
    assert field_comments(Options) == {
        "out": "where it goes",
        "first": 'how many; "#" is no comment here',  # inherited, though the default is another
        "kind": "beside the last line",
        "share": "inside parentheses",
        "date_from": "a day",
    }
    assert field_comments(Inner) == {"low": "a comment above, in two lines"}


def test_keys_values_and_defaults_are_written_as_on_the_command_line():
    docs = {doc.key: (doc.values, doc.default) for doc in field_docs(Options)}
    assert docs == {
        "out": ("path", "..."),
        "first": ("integer > 0|null", "3"),
        "kind": ("auto|none", "auto"),
        "share": ("number > 0, ≤ 1", "0.5"),
        "from": ("text|null", "null"),
        "names": ("list of text", "[a,b]"),
        "inner": ("keys of its own", "Inner(low=0.5)"),
    }


def squeezed(line):
    return " ".join(line.split())


def test_a_line_for_each_key_with_a_configurations_own_values():
    values = {"share": 0.25, "inner": {"low": 2.0}}
    share, low = key_lines(Options, "part.", values)
    assert squeezed(share) == "part.share=0.25 inside parentheses [number > 0, ≤ 1]"
    assert squeezed(low) == "part.inner.low=2 a comment above, in two lines [number]"


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_every_command_has_help(word, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(Options, ["out=x", word])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == __doc__
    (out,) = (line for line in lines if line.startswith("  out="))
    assert squeezed(out) == "out=... (required) where it goes [path]"


def test_lines_are_wrapped_for_a_terminal_alone(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    print_help(Options, "A command.")
    assert all(len(line) <= 60 for line in capsys.readouterr().out.splitlines())


def test_the_sentence_that_opens_a_file_of_choices():
    text = "# @package _global_\n# python run.py a=b\n# One, e.g. this,\n# and that. Two.\na: 1\n"
    assert opening_sentence(text) == "One, e.g. this, and that."
    assert opening_sentence("a: 1\n# late") == ""
