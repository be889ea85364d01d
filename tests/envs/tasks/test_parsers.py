"""The odd fields of contest rows, one by one; how they make a problem is in test_loaders.py."""

import datetime
import sys
from pathlib import Path

import pytest
import yaml

from envs.tasks.parsers import (
    SkipRow,
    fenced_programs,
    integers_of_any_length,
    iso_date,
    load_json,
    megabytes,
    programs,
    seconds,
    stdin_tests,
    tag_list,
)

LIMITS = yaml.safe_load((Path(__file__).parent / "data" / "limits.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("text", "value"), LIMITS["seconds"])
def test_time_limits_in_words(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize(("text", "value"), LIMITS["megabytes"])
def test_memory_limits_in_words(text, value):
    assert megabytes(text) == value


def test_tags_are_read_as_literals_only():
    assert tag_list("['a', 'b']") == ("a", "b")
    assert tag_list("__import__('os').getcwd()") == ()
    assert tag_list("[") == tag_list(None) == tag_list("'a'") == ()


def test_programs_come_as_a_list_or_as_json_of_one():
    assert programs('["a", " ", 3, "b"]', "solutions") == programs(["a", "b"], "solutions")
    assert programs(None, "solutions") == programs(" ", "solutions") == ()
    with pytest.raises(SkipRow, match=r"^solutions is not a list$"):
        programs('{"a": 1}', "solutions")


def test_the_limit_on_digits_is_lifted_only_inside():
    before = sys.get_int_max_str_digits()
    assert load_json("9" * 9000, "it") == 10**9000 - 1
    with pytest.raises(RuntimeError), integers_of_any_length():
        assert sys.get_int_max_str_digits() == 0
        raise RuntimeError
    assert sys.get_int_max_str_digits() == before


@pytest.mark.parametrize(
    "lines", [["1 2", "a\rb"], ["1 2\r", "a\rb\r"], ["1 2\r\n", "a\rb\r\n"], "1 2\r\na\rb\r\n"]
)
def test_lines_end_alike_whatever_ended_them(lines):
    [test] = stdin_tests([lines], [lines])
    assert test.input == test.output == "1 2\na\rb\n"


@pytest.mark.parametrize(
    ("value", "date"),
    [
        ("2024-08-01", "2024-08-01"),
        ("2024-08-01T13:30:00", "2024-08-01"),
        ("2024-08-01 00:00:00", "2024-08-01"),
        (1504432800, "2017-09-03"),
        (0, "1970-01-01"),
        (datetime.datetime(2020, 2, 29, 12), "2020-02-29"),
        ("2024-13-01", ""),
        ("yesterday", ""),
        ("", ""),
        (None, ""),
        (1e300, ""),
        (float("nan"), ""),
        ([2024], ""),
    ],
)
def test_dates(value, date):
    assert iso_date(value) == date


def test_fences_are_taken_off_and_other_programs_stay():
    texts = ("print(1)", "```python\nprint(2)\n```", "```\nprint(3)\n```")
    assert fenced_programs(texts) == ("print(1)", "print(2)", "print(3)")
