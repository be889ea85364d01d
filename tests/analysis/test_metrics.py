import pandas as pd
import pytest

from analysis.aggregate import interval_of
from analysis.metrics import curve_scores, metrics, scores


def samples(*rows):
    """(problem, verdict, program, tokens, entropy), … → a frame as in evals.parquet."""
    frame = pd.DataFrame(rows, columns=["problem", "verdict", "program", "tokens", "entropy"])
    return frame.assign(step=0, sample=range(len(frame)), passed=0, total=1)


def summarise(per_problem):
    """Metric → reported number."""
    return {name: interval_of([per_problem], name).mean for name in per_problem["metric"].unique()}


def test_infra_errors_leave_the_denominator():
    table = samples(
        ("p", "ACCEPTED", "print(1)", 3, 0.1),
        ("p", "WRONG_ANSWER", "print(2)", 3, 0.1),
        ("p", "INFRA_ERROR", "print(3)", 3, 0.1),
        ("q", "INFRA_ERROR", "print(4)", 3, 0.1),
    )
    assert summarise(scores(table))["pass@1"] == 0.5
    without = table[table["verdict"] != "INFRA_ERROR"]
    pd.testing.assert_frame_equal(scores(table), scores(without))


def test_problems_count_equally_in_pass_at_1_but_programs_in_the_ratio():
    rows = [("p", "ACCEPTED", "print(1)", 3, 0.1)] * 9 + [("q", "WRONG_ANSWER", "", 3, 0.1)]
    rows += [("q", "ACCEPTED", "print(2)", 3, 0.1)]
    found = summarise(scores(samples(*rows)))
    assert found["pass@1"] == pytest.approx((1 + 0.5) / 2)
    assert found["distinct_ratio"] == pytest.approx((1 + 1) / (9 + 1))


def test_metrics_have_no_value_where_they_are_not_defined():
    few = scores(samples(("p", "ACCEPTED", "print(1)", 3, None)))
    assert set(few["metric"]) == {"pass@1", "distinct_ratio", "distinct_2"}
    none = scores(samples(("p", "SYNTAX_ERROR", "", 0, None)))
    assert set(none["metric"]) == {"pass@1"}


def test_renamed_copies_are_one_program_and_what_cannot_parse_is_none():
    programs = ("n = 1\nprint(n)", "m = 1\nprint(m)  # same", "print(1)", "print(", "print(1)")
    found = summarise(scores(samples(*(("p", "ACCEPTED", text, 3, 0.1) for text in programs))))
    assert found["pass@1"] == 1.0
    assert found["distinct_ratio"] == 2 / 4
    assert "distinct_of_5" not in found  # four that parse
    assert found["edit_distance"] > 0


def test_token_entropy_weighs_every_token_once():
    table = samples(
        ("p", "WRONG_ANSWER", "a", 1, 1.0),
        ("p", "WRONG_ANSWER", "b", 3, 0.2),
        ("q", "ACCEPTED", "c", 6, 0.0),
    )
    assert summarise(scores(table))["token_entropy"] == pytest.approx(1.6 / 10)
    missing = summarise(scores(table.drop(columns="entropy")))
    assert "token_entropy" not in missing


def test_every_metric_that_is_computed_is_described():
    rows = [("p", "ACCEPTED", f"print({i % 3} + 1)", 4, 0.5) for i in range(12)]
    for ks in ((1, 5, 10), (3,)):
        described = {metric.name for metric in metrics(ks)}
        assert set(scores(samples(*rows), ks)["metric"]) == described


def test_curves_show_the_same_numbers_as_the_tables():
    rows = [("p", "ACCEPTED", f"print({i % 3} + 1)", 4, 0.5) for i in range(12)]
    rows += [("q", "WRONG_ANSWER", "print(1)", 4, 0.5)] * 3
    whole, curve = summarise(scores(samples(*rows))), summarise(curve_scores(samples(*rows)))
    assert curve == {name: whole[name] for name in ("pass@1", "distinct_of_5")}
