"""Fitted curves on the page: drawn where there is a fit, else the reason stands there."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.figures import group_styles
from analysis.page_parts import fit_figure, fit_tables
from analysis.report import main
from analysis.saturation import fit_curve, fit_differences, fit_table
from tests.analysis.stats.fit_coverage import Design, simulated_curves


@pytest.fixture(scope="module")
def fits():
    """Two fitted groups and one with three evaluations, over steps and over wall time."""
    a, b = simulated_curves(Design(3, 0.1), [0.0, 0.3], np.random.default_rng(0))
    short = replace(b, label="short", spent=b.spent[:, :4], values=b.values[:, :4])
    steps = [a, b, short]
    seconds = [replace(one, axis="wall_time", spent=60 * one.spent) for one in steps]
    return [fit_curve(one) for one in (*steps, *seconds)]


def test_curves_are_drawn_to_twice_the_budget_in_minutes(fits):
    styles = group_styles(["g0", "g1", "short"], [])
    figure = fit_figure(fits, styles)
    assert figure.labels == {"g0", "g1"}
    assert [name for name, _ in figure.choices] == ["steps", "wall time"]
    for _, (panel,) in figure.choices:
        assert ">80</text>" in panel.body and ">4800</text>" not in panel.body
        assert panel.body.count('class="line"') == panel.body.count('class="band"') == 2
        assert panel.body.count('class="marker"') == 2 * 9
    assert fit_figure([one for one in fits if one.refused], styles) is None


def test_tables_say_what_was_fitted_and_why_not(fits):
    steps, seconds = fit_tables(fit_table(fits), fit_differences(fits))
    first, _, short = steps.fits[1]
    row = fit_table(fits).iloc[0]
    assert first[2] == f"{row['A']:.3f} [{row['A_low']:.3f}, {row['A_high']:.3f}]"
    assert short[2].startswith("no fit: 3 evaluations")
    assert all(len(cells) == len(steps.fits[0]) for cells in steps.fits[1])
    assert [cells[0] for cells in steps.differences[1]] == ["g0 − g1"]
    assert " min [" in seconds.fits[1][0][4]


def test_too_few_evaluations_everywhere_are_no_section(fits):
    table = fit_table([one for one in fits if one.refused])
    assert fit_tables(table, fit_differences([])) == []


def test_a_report_has_operations_as_an_axis_and_the_fits(tmp_path, make_run):
    for algo in ("spo", "ppo"):
        small = {"problems": 6, "samples": 10, "every": 4}
        path = make_run(tmp_path / "outputs", algo, 0, **small) / "metrics.parquet"
        metrics = pd.read_parquet(path)
        metrics.assign(**{"budget/flops": metrics["step"] * 3.21e11}).to_parquet(path)
    out = tmp_path / "report"
    assert main([f"runs={tmp_path / 'outputs'}", f"out={out}"]) == 0
    fitted = pd.read_csv(out / "curve_fits.csv", keep_default_na=False)
    assert "flops" in set(fitted["axis"])
    assert len(fitted) == 2 * 2 * 5
    assert "flops" in set(pd.read_csv(out / "equal_budget.csv")["axis"])
    assert (out / "figures" / "compare" / "learning_FLOPs.svg").is_file()
    page = (out / "report.html").read_text()
    assert "FLOPs: 6.42e12" in page and "<h3>Fitted curves</h3>" in page
    assert len(pd.read_csv(out / "curve_fit_differences.csv")) == 2 * 5
