"""Scores of evaluations, at one temperature and at further ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.experiment import build_experiment
from analysis.metrics import (
    at_temperature,
    metric_bounds,
    scores,
    scores_at_step,
    scores_of_each,
    without_temperature,
)
from analysis.rendering import before_after_table
from analysis.runs import Run, load_run
from analysis.tables import experiment_tables


def samples(*rows):
    """(problem, verdict, program, tokens, entropy), … → a frame as in evals.parquet."""
    frame = pd.DataFrame(rows, columns=["problem", "verdict", "program", "tokens", "entropy"])
    return frame.assign(step=0, sample=range(len(frame)), passed=0, total=1)


def summarise(per_problem):
    """Metric → reported number."""
    return {name: row.mean() for name, row in per_problem.items()}


def test_infra_errors_leave_the_denominator():
    table = samples(
        ("p", "ACCEPTED", "print(1)", 3, 0.1),
        ("p", "WRONG_ANSWER", "print(2)", 3, 0.1),
        ("p", "INFRA_ERROR", "print(3)", 3, 0.1),
        ("q", "INFRA_ERROR", "print(4)", 3, 0.1),
    )
    assert summarise(scores(table))["pass@1"] == 0.5
    without = table[table["verdict"] != "INFRA_ERROR"]
    assert summarise(scores(table)) == summarise(scores(without))
    assert list(scores(table)["pass@1"].problems) == ["p"]


def test_problems_count_equally_in_pass_at_1_but_programs_in_the_ratio():
    rows = [("p", "ACCEPTED", "print(1)", 3, 0.1)] * 9 + [("q", "WRONG_ANSWER", "", 3, 0.1)]
    rows += [("q", "ACCEPTED", "print(2)", 3, 0.1)]
    means = summarise(scores(samples(*rows)))
    assert means["pass@1"] == pytest.approx((1 + 0.5) / 2)
    assert means["distinct_ratio"] == pytest.approx((1 + 1) / (9 + 1))


def test_distinct_accepted_has_every_problem_and_distinct_of_5_those_with_five_accepted():
    solved = [("p", "ACCEPTED", f"print({i % 2})", 3, None) for i in range(6)]
    failed = [("q", "WRONG_ANSWER", "print(1)", 3, None)] * 6
    found = scores(samples(*solved, *failed), (1, 6))
    assert list(found["distinct_of_5"].problems) == ["p"]
    assert list(found["distinct_accepted@6"].problems) == ["p", "q"]
    assert found["distinct_accepted@6"].mean() == pytest.approx((2 + 0) / 2)
    assert "distinct_accepted@1" not in found


def test_renamed_copies_are_one_program_and_what_cannot_parse_is_none():
    programs = ("n = 1\nprint(n)", "m = 1\nprint(m)  # same", "print(1)", "print(", "print(1)")
    means = summarise(scores(samples(*(("p", "ACCEPTED", text, 3, 0.1) for text in programs))))
    assert means["pass@1"] == 1.0
    assert means["distinct_ratio"] == 2 / 4
    assert "distinct_of_5" not in means  # four that parse
    assert means["edit_distance"] > 0


def test_token_entropy_weighs_every_token_once():
    table = samples(
        ("p", "WRONG_ANSWER", "a", 1, 1.0),
        ("p", "WRONG_ANSWER", "b", 3, 0.2),
        ("q", "ACCEPTED", "c", 6, 0.0),
    )
    assert summarise(scores(table))["token_entropy"] == pytest.approx(1.6 / 10)
    missing = summarise(scores(table.drop(columns="entropy")))
    assert "token_entropy" not in missing


def test_curves_show_the_same_numbers_as_the_tables():
    parts = []
    for step, (forms, wrong) in enumerate(((3, 3), (12, 0), (1, 30))):
        rows = [("p", "ACCEPTED", f"print({i % forms} + 1)", 4, 0.5) for i in range(12)]
        rows += [("q", "WRONG_ANSWER", "print(1)", 4, 0.5)] * wrong
        rows += [("q", "ACCEPTED", text, 4, 0.5) for text in ("print(", "print(2)") * (2 + step)]
        rows += [("r", "INFRA_ERROR", "print(1)", 4, 0.5)] * 2
        parts.append(samples(*rows).assign(step=10 * step))
    run = Run(Path("run"), {}, {}, pd.DataFrame(), pd.concat(parts, ignore_index=True))
    for step, part in zip((0, 10, 20), parts, strict=True):
        whole, curve = scores(part, (1, 5)), scores_at_step(run, step, (1, 5))
        assert set(curve) == {"pass@1", "pass@5", "distinct_of_5", "distinct_accepted@5"}
        for name, row in curve.items():
            assert list(row.problems) == list(whole[name].problems)
            assert row.values == pytest.approx(whole[name].values, abs=1e-12)
            assert row.weights == pytest.approx(whole[name].weights)


def test_evaluations_scored_together_on_all_cores_score_as_each_alone(monkeypatch):
    """Also where one has a problem that another lacks, and has them in another order."""
    right, wrong = "ACCEPTED", "WRONG_ANSWER"
    texts = [f"a{i} = {i % 4}\nprint(a{i} + {i})" for i in range(12)]
    each = [
        samples(*(("q", right, text, 3, 0.1) for text in texts[:6]), ("p", wrong, "x = 1", 3, 0.2)),
        samples(("p", wrong, "print(1)", 3, 0.1)),
        samples(*(("p", right, text, 3, 0.1) for text in texts), ("r", right, "print(", 1, 0.3)),
        samples(*(("q", right, text, 3, 0.1) for text in texts[5:]), ("o", right, "y = 2", 2, 0.1)),
    ]
    alone = [scores(table, (1, 5)) for table in each]
    monkeypatch.setattr("analysis.metrics.MIN_PARALLEL", 1)
    monkeypatch.setattr("analysis.programs.cores", lambda: 2)
    together = scores_of_each(each, (1, 5))
    assert len({len(means) for means in together}) > 1
    for one, other in zip(together, alone, strict=True):
        assert list(one) == list(other)
        for metric, row in one.items():
            assert list(row.problems) == list(other[metric].problems)
            assert row.values.tolist() == other[metric].values.tolist()
            assert row.weights.tolist() == other[metric].weights.tolist()


# Further temperatures in a report: the same numbers as of main evaluations with these samples.

SIZE = {"problems": 12, "samples": 10, "every": 20}
ENDS = ("", "_low", "_high", "_problems")


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
