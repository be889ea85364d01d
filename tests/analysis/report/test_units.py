import math

import pytest

from analysis.rendering import duration, fitting_unit


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0123, "0.012 s"),
        (0.74, "0.74 s"),
        (6.54, "6.5 s"),
        (119.4, "119 s"),
        (120, "2.0 min"),
        (7100, "118.3 min"),
        (7200, "2.0 h"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_a_duration_has_the_unit_of_its_size(seconds, text):
    assert duration(seconds) == text


def test_an_axis_has_the_unit_of_its_greatest_value():
    assert fitting_unit([0, 30, math.nan]).name == "seconds"
    assert fitting_unit([0, 30, 121]).name == "minutes"
    assert fitting_unit([]).name == "seconds"
