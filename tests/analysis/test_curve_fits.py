"""Fitted curves: the truth is found, and what the data do not tell is refused with its reason."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from analysis.curve_fits import (
    MeasuredCurve,
    Saturation,
    fit_curve,
    fit_differences,
    fit_table,
    fit_weighted,
    gain,
    measured_curve,
    second_half_error,
)
from analysis.groups import group_runs
from analysis.runs import load_run

BUDGET = np.array([5.0, 10, 15, 20, 30, 40, 60, 80])


SAMPLES, PROBLEMS = 20, 120
SEED_SD, PROBLEM_SD, BASE = 0.1, 2.0, -3.5  # logits; the last is the base's strength


def simulated_curves(seeds, strengths, random):
    """Curves of groups of these strengths on the same problems, with C_mid 12 and B 1.5.

    A problem's chance to be solved goes from the base's to the seed's own limit along the curve.
    """
    budget = np.linspace(0, 40.0, 9)
    difficulty = random.normal(0, PROBLEM_SD, PROBLEMS)
    shares = np.append(0.0, gain(budget[1:], 12.0, 1.5))
    curves = []
    for number, strength in enumerate(strengths):
        luck = random.normal(0, SEED_SD, (seeds, 1, 1))
        base, limit = expit(BASE + difficulty), expit(strength + luck + difficulty)
        values = random.binomial(SAMPLES, base + (limit - base) * shares[:, None]) / SAMPLES
        names, spent = tuple(f"{i:03}" for i in range(PROBLEMS)), np.tile(budget, (seeds, 1))
        label = f"g{number}"
        curves.append(
            MeasuredCurve(label, "step", "pass@1", tuple(range(seeds)), names, spent, values)
        )
    return curves


def curve_of(scores, seeds=3, problems=40, noise=0.0, label="g", budget=BUDGET, seed=0):
    """A measured curve with these means (evaluations,), the base first."""
    values = np.broadcast_to(
        np.asarray(scores, float)[None, :, None], (seeds, len(scores), problems)
    )
    values = values + noise * np.random.default_rng(seed).normal(size=values.shape)
    names = tuple(f"{i:03}" for i in range(problems))
    spent = np.tile(np.append(0.0, budget[: len(scores) - 1]), (seeds, 1))
    return MeasuredCurve(label, "step", "pass@1", tuple(range(seeds)), names, spent, values)


def exact(asymptote=0.6, exponent=1.5, midpoint=20.0, base=0.1):
    curve = Saturation(*(np.array(v) for v in (base, asymptote, midpoint, exponent)))
    return np.append(base, curve.at(BUDGET))


@pytest.mark.parametrize("midpoint", [8.0, 20.0, 50.0])
@pytest.mark.parametrize("exponent", [0.8, 1.5, 3.0])
def test_a_curve_without_noise_is_found_up_to_the_finer_grid(midpoint, exponent):
    scores = exact(exponent=exponent, midpoint=midpoint)
    found, _ = fit_weighted(BUDGET, scores[0], scores[1:], 1e-3)
    assert found.asymptote == pytest.approx(0.6, abs=0.02)
    assert found.exponent == pytest.approx(exponent, rel=0.1)
    assert found.midpoint == pytest.approx(midpoint, rel=0.1)
    assert found.at(BUDGET) == pytest.approx(scores[1:], abs=0.006)


def test_known_parameters_are_found_from_runs_with_binomial_noise():
    (measured,) = simulated_curves(5, [0.0], np.random.default_rng(3))
    row = fit_table([fit_curve(measured)]).iloc[0]
    assert row["refused"] == ""
    for name, truth in (("A", 0.5), ("B", 1.5), ("C_mid", 12.0)):
        assert row[f"{name}_low"] < truth < row[f"{name}_high"]
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
    assert row["A_high"] - row["A_low"] < 0.2
    assert (row["seeds"], row["problems"], row["evaluations"], row["budget"]) == (5, 120, 8, 40.0)
    assert row["at_twice"] < row["A"]
    assert abs(row["second_half_last"]) < 0.1


# Refusals.


def reason(scores, **kind):
    one = fit_curve(curve_of(scores, **kind))
    assert (one.curve is None) == bool(one.refused)
    row = fit_table([one]).iloc[0]
    assert np.isnan(row["A"]) == bool(one.refused)
    return one.refused


def test_what_bends_is_fitted_and_what_does_not_is_refused():
    assert reason(exact(), noise=0.05) == ""
    assert "A not identified" in reason(0.1 + 0.01 * np.append(0, BUDGET) / 10, noise=0.02)


def test_fewer_than_four_evaluations_are_refused():
    assert reason(exact()[:4]) == "3 evaluations after step 0, of 4 that are needed"
    assert "needed" not in reason(exact()[:5])


def test_a_fall_beyond_noise_is_refused_and_one_within_is_not():
    fallen = exact()
    fallen[6] -= 0.08
    assert reason(fallen, noise=0.05) == "not monotone: evaluation 6 is 0.028 below 5"
    assert "monotone" not in reason(fallen, noise=0.6)


def test_no_gain_over_the_base_is_refused():
    assert reason(np.full(9, 0.3), noise=0.1).startswith("no gain over the base")


def test_the_first_half_foretells_the_second():
    scores = exact(midpoint=8.0)
    rms, last = second_half_error(curve_of(scores))
    assert rms < 0.02 and abs(last) < 0.03
    broken = scores.copy()
    broken[5:] -= 0.1
    rms, last = second_half_error(curve_of(broken))
    assert rms == pytest.approx(0.1, abs=0.02) and last == pytest.approx(0.1, abs=0.03)
    assert np.isnan(second_half_error(curve_of(scores[:5]))).all()  # two points for three numbers


# Differences.


def test_differences_are_paired_and_on_what_both_have():
    a, b = simulated_curves(3, [0.0, 0.0], np.random.default_rng(5))
    fits = [fit_curve(a), fit_curve(replace(b, label="b"))]
    row = fit_differences(fits).iloc[0]
    ends = [np.quantile(one.replicates.asymptote, [0.025, 0.975]) for one in fits]
    alone = sum(np.ptp(both) ** 2 for both in ends) ** 0.5
    assert row["A_high"] - row["A_low"] < 0.7 * alone  # the problems are the same
    assert row["A_low"] < 0 < row["A_high"]
    assert row["A_difference"] == pytest.approx(fits[0].curve.asymptote - fits[1].curve.asymptote)
    same = fit_differences([fits[0], fits[0]]).iloc[0]
    assert (same["A_low"], same["A_difference"], same["B_high"]) == (0, 0, 0)
    fewer = replace(b, seeds=b.seeds[:2], spent=b.spent[:2], values=b.values[:2])
    on_both = fit_differences([fits[0], fit_curve(fewer)]).iloc[0]
    assert (on_both["seeds"], on_both["problems"]) == (2, 120)
    single = replace(b, seeds=b.seeds[:1], spent=b.spent[:1], values=b.values[:1])
    assert np.isnan(fit_differences([fits[0], fit_curve(single)]).iloc[0]["A_low"])


def test_a_difference_of_a_refused_fit_names_it():
    fits = [fit_curve(curve_of(exact(), noise=0.05)), fit_curve(curve_of(exact()[:4], label="b"))]
    row = fit_differences(fits).iloc[0]
    assert row["refused"] == "b: 3 evaluations after step 0, of 4 that are needed"
    assert np.isnan(row["A_difference"])


# From run folders.


@pytest.fixture(scope="module")
def groups(tmp_path_factory, make_run):
    root = tmp_path_factory.mktemp("runs")
    paths = [make_run(root, algo, seed, every=4) for algo in ("spo", "ppo") for seed in (0, 1)]
    return group_runs([load_run(path) for path in paths])


def test_a_curve_has_the_runs_own_means(groups):
    (group,) = (group for group in groups if group.label == "spo")
    curve = measured_curve(group, "judged_programs", "pass@1", (1, 10))
    evals = pd.concat([run.evals for run in group.runs])
    means = (evals["verdict"] == "ACCEPTED").groupby(evals["step"]).mean()
    assert curve.scores == pytest.approx(means.to_numpy())
    assert curve.budget.tolist() == [0, 512, 1024, 1536, 2048, 2560]
    assert curve.values.shape == (2, 6, 12)
