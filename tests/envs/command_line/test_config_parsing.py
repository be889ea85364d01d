"""Values into dataclasses: every refusal names the key, the value and what would be right."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveFloat, PositiveInt

from envs.command_line import did_you_mean, parse_arguments, parse_values


@dataclass
class Inner:
    low: float = 0.0
    share: Annotated[float, Field(ge=0, le=1)] = 0.5

    def __post_init__(self):
        if self.low > 1:
            raise ValueError(f"outer.inner.low={self.low}; it stays below another key")


@dataclass
class Outer:
    count: PositiveInt = 1
    rate: PositiveFloat | None = None
    kind: Literal["one", "other"] = "one"
    text: str = ""
    flag: bool = False
    inner: Inner = field(default_factory=Inner)
    perhaps: Inner | None = None
    numbers: list[PositiveInt] = field(default_factory=list)


def test_what_is_right_becomes_the_dataclass():
    values = {"count": 3, "rate": 2, "inner": {"share": 1}, "numbers": [1, 2], "perhaps": None}
    assert parse_values(Outer, values) == Outer(3, 2.0, inner=Inner(share=1.0), numbers=[1, 2])


WRONG = {
    "count=0; it must be at least 1": {"count": 0},
    "count=1.0; it takes a whole number (int)": {"count": 1.0},
    "count=True; it takes a whole number (int)": {"count": True},
    "count=None; it takes a whole number (int)": {"count": None},
    "count='3'; it takes a whole number (int)": {"count": "3"},
    "rate=0; it must be above 0": {"rate": 0},
    "rate=inf; it must be a finite number": {"rate": float("inf")},
    "kind='two'; choose one of one, other": {"kind": "two"},
    "text=3; it takes a text (str); as a text it is 'outer.text=\"3\"'": {"text": 3},
    "text=True; it takes a text (str); as a text it is 'outer.text=\"true\"'": {"text": True},
    "text=nan; it takes a text (str); as a text it is 'outer.text=\"nan\"'": {"text": float("nan")},
    "flag=1; it is true or false": {"flag": 1},
    "inner=3; it has keys of its own, outer.inner.KEY=VALUE": {"inner": 3},
    "inner.share=2; it must be at most 1": {"inner": {"share": 2}},
    "perhaps.low=nan; it must be a finite number": {"perhaps": {"low": float("nan")}},
    "inner.low=2.0; it stays below another key": {"inner": {"low": 2}},
    "numbers=0; it must be at least 1": {"numbers": [1, 0]},
    "numbers=3; it takes a list, e.g. [1,2]": {"numbers": 3},
}


@pytest.mark.parametrize("told", WRONG)
def test_what_is_wrong_is_one_line(told):
    with pytest.raises(ValueError) as raised:
        parse_values(Outer, WRONG[told], "outer")
    assert str(raised.value) == f"outer.{told}"


def test_an_unknown_key_names_those_that_there_are():
    with pytest.raises(
        ValueError, match=r"'inner.shaer'; did you mean 'share'\? keys here: low, sh"
    ):
        parse_values(Outer, {"inner": {"shaer": 1}})


@dataclass
class Command:
    out: Path
    first: PositiveInt | None = None
    all: bool = False
    share: float = 0.5


def test_key_value_arguments():
    assert parse_arguments(Command, ["out=a b=c", "first=2"]) == Command(Path("a b=c"), 2)
    assert parse_arguments(Command, ["out=x", "all=true"]) == Command(Path("x"), all=True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ["out=x", "frist=2"],
            "'frist=2': did you mean 'first'? write key=value, with a key of out, first, all, "
            "share",
        ),
        (
            ["/some/path"],
            "'/some/path': did you mean out=/some/path? write key=value, with a key of out, first, "
            "all, share",
        ),
        (["out=x", "first="], "first=: it must not be empty"),
        (
            ["out"],
            "'out': did you mean out=VALUE? write key=value, with a key of out, first, all, share",
        ),
        (["out=x", "first=0"], "first='0'; it must be at least 1"),
        (["out=x", "first=many"], "first='many'; it takes a whole number (int)"),
        (["out=x", "all=perhaps"], "all='perhaps'; it is true or false"),
        (["out=x", "share=inf"], "share=inf; it must be a finite number"),
        (["first=1"], "out=... is missing"),
    ],
)
def test_key_value_arguments_that_are_wrong(given, told):
    with pytest.raises(ValueError) as raised:
        parse_arguments(Command, given)
    assert str(raised.value) == told


def test_a_suggestion_is_a_misspelling_or_a_shorter_name():
    known = ["algo.learning_rate", "train.prompts", "seed"]
    assert "'seed'" in did_you_mean("sede", known)
    assert "'algo.learning_rate'" in did_you_mean("train.lr", known)
    assert "'train.prompts'" in did_you_mean("prompts", known)
    assert did_you_mean("wholly.other", known) == ""
