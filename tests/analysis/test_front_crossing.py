import math

import numpy as np
import pandas as pd
import pytest

from analysis.experiment import build_experiment
from analysis.figures import group_styles, pass_at_k_panels
from analysis.findings import findings
from analysis.front import crossing
from analysis.pass_at_k import curve_ks, pass_at_k
from analysis.runs import load_run
from analysis.tables import pass_at_k_table

SAMPLES, PROBLEMS = 64, 12


@pytest.mark.parametrize(
    ("gaps", "k"),
    [
        ([0.2, 0.1, -0.1], 8),
        ([0.2, 0.1, 0.0], 16),
        ([0.2, 0.1, 0.1], math.inf),
        ([0.2, -0.1, 0.1], math.inf),  # the base falls behind again
        ([-0.1, 0.1, -0.3], 4 * 4**0.25),
        ([0.0, -0.1, -0.1], 1),
        ([0.1, math.nan, -0.1], math.nan),
    ],
)
def test_the_k_from_which_the_gap_is_closed(gaps, k):
    found = crossing(np.array([1, 4, 16]), np.array(gaps))
    assert found == pytest.approx(k, nan_ok=True)


def test_a_curve_has_every_small_k_and_every_doubling():
    assert curve_ks(20) == list(range(1, 21))
    assert {1, 2, 19, 20, 32, 64, 128, 256} <= set(curve_ks(256))
    assert curve_ks(100)[-1] == 100
    assert len(curve_ks(256)) < 40


def rewrite(path, accepted):
    """Give each problem's first accepted(step, problem) samples a right verdict, no others."""
    evals = pd.read_parquet(path / "evals.parquet")
    problem = evals["problem"].str[-4:].astype(int)
    least = [accepted(*cell) for cell in zip(evals["step"], problem, strict=True)]
    right = evals["sample"] < least
    evals.assign(verdict=np.where(right, "ACCEPTED", "WRONG_ANSWER")).to_parquet(
        path / "evals.parquet", index=False
    )


def test_a_model_that_lost_problems_is_passed_and_one_that_won_some_is_not(tmp_path, make_run):
    """The base solves each problem in 6 or 7 of 64 tries; sharp solves half of them always."""
    base = [6 + i % 2 for i in range(PROBLEMS)]
    after = {
        "sharp": lambda i: SAMPLES * (i % 2),
        "wide": lambda i: 2 * base[i],
    }
    runs = []
    for algo, seed in ((algo, seed) for algo in after for seed in (0, 1)):
        path = make_run(tmp_path, algo, seed, samples=SAMPLES, problems=PROBLEMS)
        rewrite(path, lambda step, i, of=after[algo]: of(i) if step else base[i])
        runs.append(load_run(path))
    experiment = build_experiment("compare", runs)
    table = experiment.crossings.set_index("label")
    assert list(table["most"]) == [SAMPLES] * 2
    sharp, wide = table.loc["sharp"], table.loc["wide"]
    passed = [k for k in curve_ks(SAMPLES) if np.mean([pass_at_k(64, c, k) for c in base]) >= 0.5]
    assert passed[0] - 1 < sharp["crossing"] <= passed[0]
    assert 1 < sharp["crossing_low"] < sharp["crossing"] < sharp["crossing_high"] < SAMPLES
    # wide is level where both have solved all
    assert wide["crossing"] > 32
    said = findings(experiment)[-1].statements[0]
    assert f"sharp {sharp['crossing']:.0f} [" in said
    curve = pass_at_k_table(experiment.models)
    (panel,) = pass_at_k_panels(curve, group_styles(experiment))
    assert panel.labels == {"base", "sharp", "wide"}
    for k in (1, 2, 4, 8, 16, 32, 64):
        assert f" at {k}</title>" in panel.body
    halves = [panel.body.index(f">{k}</text>") for k in (1, 4, 16, 64)]  # ticks
    assert halves == sorted(halves)
