"""Further temperatures in a report: the same numbers as of main evaluations with these samples."""

import numpy as np
import pandas as pd
import pytest

from analysis.compare import main as compare
from analysis.experiment import build_experiment
from analysis.metrics import at_temperature, metric_bounds, without_temperature
from analysis.rendering import before_after_table
from analysis.report import main as report
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


def test_no_other_number_changes(tables):
    for name, plain in tables["plain"].items():
        both = tables["both"][name]
        if "metric" in both:
            both = both[~both["metric"].str.contains("(T=", regex=False)].reset_index(drop=True)
        both = both[[column for column in both if "(T=" not in column]]
        same = plain.drop(columns="path", errors="ignore")
        pd.testing.assert_frame_equal(
            both.drop(columns="path", errors="ignore"), same, check_exact=True
        )


def test_reports_show_a_table_only_where_there_is_one(folders, tmp_path, capsys):
    for name in ("plain", "both"):
        assert report([f"runs={folders / name}", f"out={tmp_path / name}"]) == 0
        texts = [
            (tmp_path / name / f).read_text() for f in ("report.html", "table.md", "table.tex")
        ]
        assert all(("At temperature 1" in text) == (name == "both") for text in texts)
    table = texts[1].partition("At temperature 1:\n\n")[2].partition("\n\n")[0]
    results = pd.read_csv(tmp_path / "both" / "table.csv")
    for row in results.to_dict("records"):
        (line,) = [line for line in table.splitlines() if line.startswith(f"| {row['label']} ")]
        assert f"{row['pass@10 (T=1)']:.3f} [" in line
    capsys.readouterr()
    both = folders / "both" / "compare"
    assert compare([f"a={both}/spo-*", f"b={both}/ppo-*"]) == 0
    assert "pass@10 (T=1)" in capsys.readouterr().out


def test_a_runs_closing_table_has_rows_of_its_own(folders):
    both, plain = (
        list(before_after_table(folders / name / "compare" / "spo-0").columns[0].cells)
        for name in ("both", "plain")
    )
    assert both == [*plain, *map(at_1, plain)]


def test_runs_without_them_are_named_and_left_out_there_alone(
    folders, tmp_path, make_run, add_further
):
    """One seed of ppo and all of spo lack them; the base has them from one run of its seed."""
    alone = load_run(folders / "alone" / "compare" / "ppo-0").evals
    runs = [make_run(tmp_path, algo, seed, **SIZE) for algo in ("ppo", "spo") for seed in (0, 1)]
    add_further(runs[0], 1.0, alone)
    experiment = build_experiment("compare", [load_run(path) for path in runs])
    base, ppo, spo = experiment.models
    assert ppo.grids["pass@1"].weights.sum() == 2 * 12
    assert ppo.grids[at_1("pass@1")].weights.sum(axis=1).tolist() == [12, 0]
    assert at_1("pass@1") in base.grids and at_1("pass@1") not in spo.grids
    (note,) = [note for note in experiment.notes if "at temperature 1" in note]
    assert "compare/spo-0" in note and "compare/ppo-1" in note and "compare/ppo-0" not in note
    table = experiment_tables(experiment)["table.csv"].set_index("label")
    one_seed = tables_of_one(folders / "alone" / "compare" / "ppo-0")
    assert table.loc["ppo", at_1("pass@10")] == one_seed.loc["ppo", "pass@10"]
    assert np.isnan(table.loc["spo", at_1("pass@10")])


def tables_of_one(path):
    tables = experiment_tables(build_experiment("compare", [load_run(path)]))
    return tables["table.csv"].set_index("label")


def test_samples_that_the_judge_failed_on_are_left_out_and_counted(
    folders, tmp_path, make_run, add_further
):
    path = make_run(tmp_path, "spo", 0, **SIZE)
    evals = samples_of(folders / "alone" / "compare" / "spo-0")
    last = evals["step"] == 20
    failed = last & (evals["sample"] == 0)
    add_further(path, 1.0, evals.assign(verdict=evals["verdict"].where(~failed, "INFRA_ERROR")))
    experiment = build_experiment("compare", [load_run(path)])
    right = evals[last & ~failed]["verdict"].eq("ACCEPTED")
    grid = experiment.trained[0].grids[at_1("pass@1")]
    assert grid.values.mean() == pytest.approx(right.mean())
    assert "spo: the judge failed on 12 of 240 samples (left out)." in experiment.notes
