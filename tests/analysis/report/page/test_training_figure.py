"""A spike does not flatten a panel: the axis is cut, what lies beyond is marked and counted."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis.figures import Style, figure_files, robust_bounds, training_figure

STEPS = 100


def curve(**columns):
    """training.csv of groups of one seed, a metric each: its values at every step."""
    parts = []
    for label, values in columns.items():
        table = pd.DataFrame({"step": np.arange(1, STEPS + 1), "kl_ref": values})
        for end in ("_low", "_high"):
            table[f"kl_ref{end}"] = table["kl_ref"]
        parts.append(table.assign(label=label, seeds=1))
    return pd.concat(parts)


def drawn(**columns):
    styles = {label: Style(i) for i, label in enumerate(columns)}
    figure = training_figure(curve(**columns), styles, 5)
    ((_, (panel,)),) = figure.choices
    return panel, figure, styles


RISING = np.linspace(0, 2, STEPS)


def spiked(size):
    """A line with a spike that fills a window of five steps, at the end of which it is greatest."""
    values = RISING.copy()
    values[60:65] = np.linspace(size / 2, size, 5)
    return values


def test_a_spike_is_cut_marked_and_counted():
    panel, figure, styles = drawn(spo=RISING, ppo=spiked(80.0))
    assert 2.0 <= panel.y.high < 2.5 and panel.y.low == 0
    assert panel.note == "5 of 200 points lie above, up to 80 (ppo)"
    spo, ppo = panel.body.split("<g ")[1:]
    assert ppo.count('class="beyond"') == 3  # of the five, those that are drawn
    assert "beyond" not in spo
    (file,) = figure_files(figure, styles, None).values()
    assert panel.note in file


def test_a_panel_that_no_value_flattens_is_whole():
    for size in (2.0, 3.5):
        panel, *_ = drawn(spo=RISING, ppo=spiked(size))
        assert panel.y.high >= size and panel.note == "" and "beyond" not in panel.body


def test_a_fall_is_cut_as_a_rise_is():
    panel, *_ = drawn(spo=RISING, ppo=np.where(RISING == 0, -30.0, RISING))
    assert -0.3 < panel.y.low < 0
    assert panel.note == "1 of 200 points lie below, down to -30 (ppo)"
    assert panel.body.count('class="beyond"') == 1


def test_a_range_that_is_cut_is_counted_too():
    table = curve(spo=RISING, ppo=RISING)
    table["seeds"] = 3
    table.iloc[50:53, table.columns.get_loc("kl_ref_high")] = 40.0
    styles = {label: Style(i) for i, label in enumerate(("spo", "ppo"))}
    ((_, (panel,)),) = training_figure(table, styles, 5).choices
    assert panel.y.high < 2.5 and "beyond" not in panel.body
    assert panel.note == "3 of 200 points or their ranges lie above, up to 40 (spo)"


@pytest.mark.parametrize("lines", [1, 3, 23])
def test_a_window_of_one_line_is_left_out_however_few_the_lines(lines):
    values = np.concatenate([np.full(5, 1e4), *[RISING] * lines])[5:]
    values[:5] = 1e4
    low, high = robust_bounds(values, lines)
    assert low == -math.inf and 1.9 < high < 2.5


def test_a_line_that_is_high_for_long_is_no_spike():
    values = np.concatenate([RISING] * 9 + [100 * RISING])
    assert robust_bounds(values, 10) == (-math.inf, math.inf)
    assert robust_bounds(np.array([np.nan]), 1) == (-math.inf, math.inf)
    assert robust_bounds(np.zeros(50), 1) == (-math.inf, math.inf)
