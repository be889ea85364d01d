"""Differences at equal pass@1: known fronts, interpolation, what is refused."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.experiment import Experiment
from analysis.findings import findings
from analysis.front import at_equal, front_differences
from analysis.groups import EvaluatedModel
from analysis.metrics import scores_of_each, without_temperature
from analysis.runs import Run

KS, PROBLEMS, SAMPLES = (1, 10), 10, 10
SPREAD = [[level] * PROBLEMS for level in (0, 1, 2, 3, 4, 5, 6)]  # accepted samples by problem
NARROW = [[SAMPLES] * level + [0] * (PROBLEMS - level) for level in (0, 1, 2, 3, 4, 5, 6)]


def run(accepted, seed=0, name="a"):
    """A run whose evaluation number i accepted `accepted[i]` samples of each problem."""
    rows = [
        (i * 20, f"p{p}", s, "ACCEPTED" if s < count else "WRONG_ANSWER", f"x = {s}", 5)
        for i, counts in enumerate(accepted)
        for p, count in enumerate(counts)
        for s in range(SAMPLES)
    ]
    columns = ["step", "problem", "sample", "verdict", "program", "tokens"]
    evals = pd.DataFrame(rows, columns=columns)
    return Run(Path(f"{name}-{seed}"), {}, {"seed": seed, "status": "finished"}, evals, evals)


def model(label, curves):
    runs = tuple(run(curve, seed, label) for seed, curve in enumerate(curves))
    last = [one.evaluation(one.evaluated_steps[-1]) for one in runs]
    return EvaluatedModel(label, 120, runs, KS, scores_of_each(last, KS))


def gap(one, other, metric="pass@10"):
    return at_equal(run(one), run(other, name="b"), metric, KS)


def test_at_equal_pass_at_1_the_wider_front_is_ahead():
    """Spread has pass@10 = 1 from the first evaluation on, narrow has pass@10 = pass@1."""
    found = gap(SPREAD, NARROW)
    assert found.mean() == pytest.approx(1 - 0.35)  # mean of 1 - x over x = .1, …, .6
    assert gap(NARROW, SPREAD).mean() == pytest.approx(-found.mean())
    first = found.values[list(found.problems).index("p0")]
    assert first == pytest.approx(0.0)  # both solve it from .1 on


def test_an_arm_that_is_only_faster_is_on_the_same_front():
    fast = NARROW[:1] + NARROW[2:] + [[SAMPLES] * 9 + [0]]
    assert gap(fast, NARROW).mean() == pytest.approx(0.0)


def test_where_a_curve_falls_and_rises_again_its_first_passage_counts():
    later_poor = [*NARROW[:4], NARROW[1], SPREAD[3], SPREAD[4]]
    assert at_equal(run(SPREAD), run(later_poor, name="b"), "pass@10", KS).mean() > 0.4


def test_distinct_programs_are_compared_too():
    assert gap(SPREAD, NARROW, "distinct_accepted@10").mean() == pytest.approx(0.0)
    doubled = run(SPREAD)
    doubled.evals["program"] = "x = 0"
    found = at_equal(doubled, run(SPREAD, name="b"), "distinct_accepted@10", KS)
    assert found.mean() == pytest.approx(-2.5)  # 1 instead of 1, …, 6


def test_what_shares_no_range_or_has_few_evaluations_is_refused():
    assert gap(SPREAD[:5], SPREAD) is None
    high = [SPREAD[0], *([[level] * PROBLEMS for level in (9, 9, 9, 9, 9, 10)])]
    low = [SPREAD[0], *([[0] * PROBLEMS] * 6)]
    assert gap(high, low) is None


def test_differences_have_an_interval_over_seeds_and_problems_and_need_two_seeds():
    curves = [SPREAD, SPREAD, [*SPREAD[:6], [5] * PROBLEMS]]
    a, b = model("spread", curves), model("narrow", [NARROW] * 3)
    by_metric = {pair.metric: pair for pair in front_differences([a, b], KS)}
    pair = by_metric["pass@10 at equal pass@1"]
    assert (pair.a, pair.b, pair.seeds, pair.problems) == ("spread", "narrow", 3, PROBLEMS)
    d = pair.difference
    assert d.mean == pytest.approx(0.65, abs=0.02)
    assert d.low < d.mean < d.high
    assert pair.adjusted_p < 0.05
    assert without_temperature(pair.metric) == "pass@10"
    said = {one.title: one.statements for one in findings(Experiment("x", [], KS, [a, b], []))}
    assert said[pair.metric][0].endswith("a range in common: spread above narrow.")
    assert not front_differences([model("one", [SPREAD]), model("other", [NARROW])], KS)
