"""The score of a trial: area under (pass@1 + pass@10)/2 over training."""

import math
from pathlib import Path

import pandas as pd
import pytest

from analysis.budgets import curve_score
from analysis.runs import Run


def run(accepted, samples=10, steps=None):
    """{step: accepted samples of each problem} → a run with `samples` for each problem.

    It has as many steps as its last evaluation, or `steps`.
    """
    rows = [
        (step, f"p{i}", n, "ACCEPTED" if n < count else "WRONG_ANSWER", "print(1)")
        for step, counts in accepted.items()
        for i, count in enumerate(counts)
        for n in range(samples)
    ]
    columns = ["step", "problem", "sample", "verdict", "program"]
    config = {"steps": max(accepted) if steps is None else steps}
    return Run(Path("r"), config, {}, pd.DataFrame(), pd.DataFrame(rows, columns=columns))


def test_the_score_is_the_area_under_the_mean_of_pass_at_1_and_pass_at_10():
    # pass@1 0, .1, .6; pass@10 of ten samples: the share of problems with an accepted one
    one = run({0: [0, 0], 10: [2, 0], 40: [10, 2]})
    assert curve_score(one) == pytest.approx((10 * 0.15 + 30 * 0.55) / 40)


def test_of_two_runs_with_the_same_end_the_earlier_one_scores_higher():
    early, late = run({0: [0], 10: [8], 40: [8]}), run({0: [0], 10: [0], 40: [8]})
    assert curve_score(early) > curve_score(late)


def test_of_two_runs_with_the_same_pass_at_1_the_more_diverse_one_scores_higher():
    narrow, wide = run({0: [0, 0], 10: [10, 0]}), run({0: [0, 0], 10: [5, 5]})
    assert curve_score(wide) == pytest.approx((0.5 + 1) / 4)
    assert curve_score(narrow) == pytest.approx((0.5 + 0.5) / 4)


def test_too_few_samples_give_no_score():
    assert curve_score(run({0: [0], 10: [5]}, samples=9)) != curve_score(run({0: [0], 10: [5]}))
    assert str(curve_score(run({0: [0], 10: [5]}, samples=9))) == "nan"


@pytest.mark.parametrize(
    "one",
    [
        run({10: [5], 40: [8]}),  # without the base model
        run({0: [0], 10: [5]}, steps=40),  # without the end
        run({0: [0]}, steps=40),
    ],
)
def test_a_part_of_the_curve_gives_no_score(one):
    """Else a trial that left its low start out would score above one that did not."""
    assert math.isnan(curve_score(one))
