import numpy as np
import pandas as pd
import pytest

from analysis.budgets import MOST_STEPS, thinned, training_curve
from analysis.groups import group_runs
from analysis.runs import load_run


def recorded(path, **columns):
    """The run after columns of its metrics were set."""
    metrics = pd.read_parquet(path / "metrics.parquet").assign(**columns)
    metrics.to_parquet(path / "metrics.parquet")
    return load_run(path)


def test_a_metric_is_smoothed_averaged_over_seeds_and_has_their_range(tmp_path, make_run):
    steps = np.arange(1.0, 21.0)
    runs = [
        recorded(make_run(tmp_path, "spo", seed), entropy=steps * (1 + seed)) for seed in (0, 1)
    ]
    curve = training_curve(group_runs(runs), window=4).set_index("step")
    at_end = curve.loc[20]
    assert (at_end["entropy_low"], at_end["entropy_high"]) == (18.5, 37.0)  # of steps 17 to 20
    assert at_end["entropy"] == pytest.approx(27.75)
    assert (curve["seeds"] == 2).all() and len(curve) == 20
    assert curve.loc[1, "entropy"] == 1.5  # a window that begins before the run
    tokens = [run.metrics.set_index("step").loc[7] for run in runs]
    spent = [row["budget/generated_tokens"] + row["budget/reference_tokens"] for row in tokens]
    assert curve.loc[7, "generated_tokens"] == pytest.approx(np.mean(spent))


def test_columns_are_those_that_any_run_recorded(tmp_path, make_run):
    critic = recorded(make_run(tmp_path, "ppo"), **{"value/explained_variance": np.ones(20)})
    other = recorded(make_run(tmp_path, "spo"), clip_share=np.full(20, np.nan))
    curve = training_curve(group_runs([critic, other]), window=1)
    assert "clip_share" not in curve and "reward_mean_high" in curve
    by_group = curve.groupby("label")["value/explained_variance"]
    assert by_group.count().to_dict() == {"ppo": 20, "spo": 0}


def test_long_runs_are_thinned_and_keep_both_ends():
    places = thinned(10 * MOST_STEPS, MOST_STEPS)
    assert len(places) == MOST_STEPS and (places[0], places[-1]) == (0, 10 * MOST_STEPS - 1)
    assert list(thinned(3, MOST_STEPS)) == [0, 1, 2]
