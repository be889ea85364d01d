"""The figure of a study shows the table's figures under the arms' names."""

import math

from experiments.studies.figures import forest, save

ROWS = [
    ("base", {"pass@1": 0.1, "pass@1_low": 0.05, "pass@1_high": 0.15}),
    ("spo_half", {"pass@1": 0.5, "pass@1_low": 0.4, "pass@1_high": 0.7, "pass@10": 0.9}),
]


def test_means_intervals_and_names():
    figure = forest(ROWS, ["pass@1", "pass@10"])
    left, right = figure.axes
    drawn = {tuple(line.get_xdata()): tuple(line.get_ydata()) for line in left.lines}
    assert drawn[(0.4, 0.7)] == (1, 1) and drawn[(0.5,)] == (1,)
    assert drawn[(0.05, 0.15)] == (0, 0) and drawn[(0.1,)] == (0,)
    assert [label.get_text() for label in left.get_yticklabels()] == ["base", "spo_half"]
    assert left.get_ylim()[0] > left.get_ylim()[1], "the first row is not at the top"
    assert any(tuple(line.get_xdata()) == (0.9,) for line in right.lines)
    assert sum(math.isnan(line.get_xdata()[0]) for line in right.lines) >= 2


def test_the_same_bytes_and_words_that_are_text(tmp_path):
    for name in ("a.svg", "b.svg"):
        save(forest(ROWS, ["pass@1"]), tmp_path / name)
    first, second = (tmp_path / "a.svg").read_bytes(), (tmp_path / "b.svg").read_bytes()
    assert first == second and b">spo_half</text>" in first
