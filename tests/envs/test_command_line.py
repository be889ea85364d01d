"""Values into dataclasses: every refusal names the key, the value and what is allowed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveFloat, PositiveInt

from envs.command_line import choices_of, did_you_mean, parse_arguments, parse_values, yaml_lines
from envs.messages import readable


@dataclass
class Inner:
    share: Annotated[float, Field(ge=0, le=1)] = 0.5


@dataclass
class Outer:
    count: PositiveInt = 1
    rate: PositiveFloat | None = None
    kind: Literal["one", "other"] = "one"
    text: str = ""
    inner: Inner = field(default_factory=Inner)
    numbers: list[PositiveInt] = field(default_factory=list)
    date_from: Annotated[str | None, Field(alias="from")] = None


def test_what_is_right_becomes_the_dataclass():
    values = {"count": 3, "rate": 2, "inner": {"share": 1}, "numbers": [1, 2], "from": "x"}
    assert parse_values(Outer, values) == Outer(3, 2.0, "one", "", Inner(1.0), [1, 2], "x")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"count": 0}, "outer.count=0 0"),
        ({"count": 1.0}, "outer.count=1.0 integer"),
        ({"count": None}, "outer.count=None integer"),
        ({"rate": float("inf")}, "outer.rate=inf finite"),
        ({"kind": "two"}, "outer.kind='two' 'one' 'other'"),
        ({"text": 3}, "outer.text=3 'outer.text=\"3\"'"),
        ({"text": True}, "'outer.text=\"true\"'"),
        ({"inner": 3}, "outer.inner=3 outer.inner.KEY=VALUE"),
        ({"inner": {"share": 2}}, "outer.inner.share=2 1"),
        ({"inner": {"share": float("nan")}}, "outer.inner.share=nan finite"),
        ({"inner": {"shaer": 1}}, "'outer.inner.shaer' 'share'"),
        ({"numbers": [1, 0]}, "outer.numbers=0"),
    ],
)
def test_what_is_wrong_is_one_line(values, words):
    with pytest.raises(ValueError) as raised:
        parse_values(Outer, values, "outer")
    line = str(raised.value)
    assert "\n" not in line and all(word in line for word in words.split()), line


@dataclass
class Command:
    out: Path  # where it goes
    first: PositiveInt | None = None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("out=x frist=2", "'frist=2' 'first'"),
        ("/some/path", "'/some/path' key=value out"),
        ("out=x first=", "first= empty"),
        ("out=x first=0", "first='0'"),
        ("first=1", "out missing"),
    ],
)
def test_arguments_of_a_command(given, words):
    assert parse_arguments(Command, ["out=a b=c", "first=2"]) == Command(Path("a b=c"), 2)
    with pytest.raises(ValueError) as raised:
        parse_arguments(Command, given.split())
    assert all(word in str(raised.value) for word in words.split()), raised.value


def test_help_shows_the_docstring_and_each_key(capsys):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(Command, ["--help"])
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert __doc__ in printed and "out: Path  # where it goes" in printed


def test_a_yaml_files_comments_are_the_help(tmp_path):
    (tmp_path / "_base.yaml").write_text("# A base.\n\n# above,\n# twice\na: 1\nb: 2  # beside\n")
    (tmp_path / "x.yaml").write_text("# X.\ndefaults: [_base, _self_]\nc:\n  d: 3  # deep\n")
    lines = list(yaml_lines(tmp_path / "x.yaml", {"a": 5, "b": None, "c": {"d": [1]}}, "s."))
    squeezed = [" ".join(line.split()) for line in lines]
    assert squeezed == ["s.a=5 above, twice", "s.b=null beside", "s.c.d=[1] deep"]


def test_a_suggestion_is_a_misspelling_or_a_shorter_name():
    known = ["algo.learning_rate", "train.prompts", "seed"]
    assert "'seed'" in did_you_mean("sede", known)
    assert "'algo.learning_rate'" in did_you_mean("train.lr", known)
    assert "'train.prompts'" in did_you_mean("prompts", known)
    assert did_you_mean("wholly.other", known) == ""
    slips = {"SPO": "spo", "sop": "spo", "pop": "ppo", "gpro": "grpo"}
    for slip, meant in slips.items():
        assert did_you_mean(slip, choices_of("algo")) == f"did you mean '{meant}'? "
    assert "'smollm2_135m'" in did_you_mean("smollm", choices_of("model"))


def test_characters_that_act_on_a_terminal_are_named():
    hostile = "\x1b]0;owned\x07\x9b31m\rover\u202eback\u2066\u200b\x00end"
    assert readable(hostile) == (
        "⟨U+001B⟩]0;owned⟨U+0007⟩⟨U+009B⟩31m⟨U+000D⟩over⟨U+202E⟩back⟨U+2066⟩⟨U+200B⟩⟨U+0000⟩end"
    )
    assert readable("a\tb\nüé 你好 🎉 |`<b>") == "a\tb\nüé 你好 🎉 |`<b>"
    assert readable("abcdef", 3) == "abc… (6 characters)"
