"""Samples that stand for counts have the same scores as the samples that were counted."""

import numpy as np
import pandas as pd
import pytest

from analysis.metrics import is_counted, scores
from analysis.programs import normal_form
from analysis.runs import COUNT_COLUMNS, UNPARSABLE, count_samples, load_run, stand_in_samples


@pytest.fixture
def evals(tmp_path, make_run):
    """Evaluations with right programs that cannot be parsed, and judge failures."""
    evals = load_run(make_run(tmp_path, skill=8.0)).evals.reset_index(drop=True)
    accepted = np.flatnonzero(evals["verdict"] == "ACCEPTED")
    evals.loc[accepted[::7], "program"] = "print 1"
    evals.loc[accepted[3::11], "verdict"] = "INFRA_ERROR"
    return evals


def test_counts_give_the_same_scores_to_the_last_bit(evals):
    counts = count_samples(evals)
    assert tuple(counts) == COUNT_COLUMNS
    stand_in = stand_in_samples(counts)
    for step in (0, 10, 20):
        found = (scores(table[table["step"] == step]) for table in (stand_in, evals))
        mine, right = ({n: s for n, s in each.items() if is_counted(n)} for each in found)
        assert {"pass@1", "pass@10", "distinct_accepted@10"} <= set(right) == set(mine)
        for name, score in right.items():
            assert mine[name].problems.tolist() == score.problems.tolist()
            assert mine[name].values.tolist() == score.values.tolist(), name
            assert mine[name].weights.tolist() == score.weights.tolist()
    assert "distinct_of_5" in right


def test_stand_ins_have_the_counts(evals):
    counts = count_samples(evals)
    again = count_samples(stand_in_samples(counts).assign(tokens=0))
    pd.testing.assert_frame_equal(again.drop(columns="tokens"), counts.drop(columns="tokens"))
    assert counts["samples"].sum() == len(evals)
    assert counts["judged"].sum() == (evals["verdict"] != "INFRA_ERROR").sum()
    judged = evals[evals["verdict"] != "INFRA_ERROR"]
    assert counts["tokens"].sum() == judged["tokens"].sum()


def test_constants_differ_in_their_normal_forms():
    assert len({normal_form(str(number)) for number in range(200)}) == 200
    assert normal_form(UNPARSABLE) is None


@pytest.mark.parametrize(
    ("samples", "judged", "accepted", "forms"),
    [(2, 3, 1, "1"), (3, 2, 3, "1"), (3, 3, 1, "1 1"), (3, 3, 3, "3 0"), (3, 3, -1, "")],
)
def test_impossible_counts_are_refused(samples, judged, accepted, forms):
    row = [0, "p", samples, judged, accepted, forms, 0]
    with pytest.raises(ValueError, match=f"{accepted} accepted"):
        stand_in_samples(pd.DataFrame([row], columns=list(COUNT_COLUMNS)))


@pytest.mark.parametrize(
    ("metric", "known"),
    [("pass@10 (T=1)", True), ("distinct_of_5", True), ("edit_distance", False), ("time", False)],
)
def test_metrics_of_counts(metric, known):
    assert is_counted(metric) == known
