"""Dates and ratings as data sets write them."""

import datetime

import pytest

from envs.tasks.parsers import fenced_programs, iso_date, rating


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


@pytest.mark.parametrize(
    ("value", "expected"),
    [(800, 800), (3500.0, 3500), (0, None), (-1, None), (None, None), ("800", None), (1e300, None)],
)
def test_ratings(value, expected):
    assert rating(value) == expected


def test_fences_are_taken_off_and_other_programs_stay():
    texts = ("print(1)", "```python\nprint(2)\n```", "```\nprint(3)\n```")
    assert fenced_programs(texts) == ("print(1)", "print(2)", "print(3)")
