import numpy as np
import pandas as pd
import pytest

from analysis.budgets import evaluation_curve, kl_at_step
from analysis.groups import group_runs
from analysis.metrics import DISTINCT
from analysis.runs import load_run


@pytest.fixture
def groups(tmp_path, make_run):
    paths = [make_run(tmp_path, algo, seed) for algo in ("ppo", "spo") for seed in (0, 1)]
    return group_runs([load_run(path) for path in paths])


def share(run, step):
    samples = run.evaluation(step)
    return (samples["verdict"] == "ACCEPTED").groupby(samples["problem"]).mean().mean()


def with_metrics(path, **columns):
    """The run after columns of its metrics were set; None takes one away."""
    metrics = pd.read_parquet(path / "metrics.parquet").assign(**columns)
    metrics = metrics.drop(columns=[name for name, values in columns.items() if values is None])
    metrics.to_parquet(path / "metrics.parquet")
    return load_run(path)


def test_curves_are_placed_at_the_budget_spent(groups):
    curve = evaluation_curve(groups)
    spo = curve[curve["label"] == "spo"].set_index("step")
    assert list(spo.index) == [0, 10, 20]
    assert spo.loc[0, "generated_tokens"] == 0
    runs = groups[1].runs
    at_10 = [run.metrics.set_index("step").loc[10] for run in runs]
    tokens = [row["budget/generated_tokens"] + row["budget/reference_tokens"] for row in at_10]
    assert spo.loc[10, "generated_tokens"] == pytest.approx(np.mean(tokens))
    assert spo.loc[10, "wall_time"] == pytest.approx(np.mean([r["time/total_s"] for r in at_10]))
    assert spo.loc[20, "pass@1"] == pytest.approx(np.mean([share(run, 20) for run in runs]))


def test_kl_is_what_the_evaluation_measured(tmp_path, make_run):
    measured = np.full(20, np.nan)
    measured[[9, 19]] = 3.0, 7.0
    run = with_metrics(make_run(tmp_path), **{"eval/kl_ref": measured})
    assert [kl_at_step(run, step) for step in (0, 10, 20)] == [0.0, 3.0, 7.0]
    assert np.isnan(kl_at_step(run, 15))


def test_kl_of_a_run_that_did_not_measure_it_is_the_losses_or_none(tmp_path, make_run):
    run = with_metrics(make_run(tmp_path, "spo"), kl_ref=np.arange(1.0, 21.0))
    assert kl_at_step(run, 0) == 0.0
    assert kl_at_step(run, 20) == pytest.approx(np.mean(np.arange(11, 21)))
    assert kl_at_step(run, 5) == pytest.approx(3.0)
    assert np.isnan(kl_at_step(with_metrics(make_run(tmp_path, "grpo"), kl_ref=None), 20))


def test_the_way_of_pass_at_1_and_diversity_over_kl(tmp_path, make_run):
    paths = [make_run(tmp_path, "spo", seed, skill=8.0) for seed in (0, 1)]
    kls = [np.linspace(0, 4.0, 20), np.linspace(0, 6.0, 20)]
    runs = [with_metrics(p, **{"eval/kl_ref": kl}) for p, kl in zip(paths, kls, strict=True)]
    curve = evaluation_curve(group_runs(runs)).set_index("step")
    assert curve.loc[0, "kl_ref"] == 0.0
    assert curve.loc[20, "kl_ref"] == pytest.approx(5.0)
    row = curve.loc[20]
    assert row[f"{DISTINCT}_low"] <= row[DISTINCT] <= row[f"{DISTINCT}_high"]
