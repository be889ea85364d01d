"""Further temperatures in a report: the same numbers as of main evaluations with these samples."""

import numpy as np
import pandas as pd
import pytest

from analysis.experiment import build_experiment
from analysis.metrics import at_temperature, metric_bounds, without_temperature
from analysis.rendering import before_after_table
from analysis.runs import load_run
from analysis.tables import experiment_tables

SIZE = {"problems": 12, "samples": 10, "every": 20}
ENDS = ("", "_low", "_high", "_problems", "_iqm")


def samples_of(path):
    return pd.read_parquet(path / "evals.parquet")


@pytest.fixture(scope="module")
def folders(tmp_path_factory, make_run, add_further):
    """Runs with further evaluations, the same runs without, and runs of those alone, at T=1."""
    root = tmp_path_factory.mktemp("runs")
    for algo in ("ppo", "spo"):
        for seed in (0, 1):
            alone = make_run(root / "alone", algo, seed, skill=1.5, collapse=-0.05, **SIZE)
            make_run(root / "plain", algo, seed, **SIZE)
            add_further(make_run(root / "both", algo, seed, **SIZE), 1.0, samples_of(alone))
    return root


def tables_of(folder):
    runs = [load_run(path) for path in sorted((folder / "compare").iterdir())]
    return experiment_tables(build_experiment("compare", runs))


@pytest.fixture(scope="module")
def tables(folders):
    return {name: tables_of(folders / name) for name in ("both", "plain", "alone")}


def at_1(metric):
    return at_temperature(metric, 1.0)


def test_names_are_those_of_the_main_metrics_with_the_temperature():
    assert at_1("pass@10") == "pass@10 (T=1)" and at_temperature("x", 0.25) == "x (T=0.25)"
    for metric in ("pass@10", "distinct_accepted@10", "token_entropy", "distinct_of_5"):
        assert without_temperature(at_1(metric)) == without_temperature(metric) == metric
        assert metric_bounds(at_1(metric)) == metric_bounds(metric)


def test_results_are_those_of_the_samples_at_that_temperature(tables):
    both, alone = (tables[name]["table.csv"].set_index("label") for name in ("both", "alone"))
    metrics = ("pass@1", "pass@10", "distinct_accepted@10", "distinct_of_5", "edit_distance")
    for metric in metrics:
        for end in ENDS:
            there, here = both[at_1(metric) + end], alone[metric + end]
            np.testing.assert_array_equal(there, here, err_msg=metric + end)
        assert (both[at_1(metric)] != both[metric]).any()


@pytest.mark.parametrize("name", ["differences.csv", "tiers.csv", "power.csv"])
def test_so_are_differences_tiers_and_power(name, tables):
    both, alone = (tables[runs][name] for runs in ("both", "alone"))
    there = both[both["metric"].str.endswith(" (T=1)")].reset_index(drop=True)
    there["metric"] = there["metric"].map(without_temperature)
    assert len(there) == len(alone) > 0
    pd.testing.assert_frame_equal(there, alone, check_exact=True)


def test_a_runs_closing_table_has_rows_of_its_own(folders):
    both, plain = (
        list(before_after_table(folders / name / "compare" / "spo-0").columns[0].cells)
        for name in ("both", "plain")
    )
    assert both == [*plain, *map(at_1, plain)]
