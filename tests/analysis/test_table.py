import pandas as pd
import pytest

from analysis.runs import RunError
from analysis.table import before_after, print_before_after


def test_first_and_last_evaluation_side_by_side(tmp_path, make_run, capsys):
    path = make_run(tmp_path)
    table = before_after(path).set_index("metric")
    evals = pd.read_parquet(path / "evals.parquet")
    shares = (evals["verdict"] == "ACCEPTED").groupby(evals["step"]).mean()
    assert table.loc["pass@1", "before"] == pytest.approx(shares[0])
    after = table.loc["pass@1", "after"]
    assert after == pytest.approx(shares[20])
    print_before_after(path)
    printed = capsys.readouterr().out
    for text in ("step 0", "step 20", "pass@1", "pass@10", "distinct of 5", f"{after:.3f}"):
        assert text in printed


def test_an_interrupted_run_shows_what_there_is(tmp_path, make_run, capsys):
    path = make_run(tmp_path, status="interrupted")
    evals = pd.read_parquet(path / "evals.parquet")
    evals[evals["step"] == 0].to_parquet(path / "evals.parquet")
    print_before_after(path)
    printed = capsys.readouterr().out
    assert "before training" in printed
    assert "after training" not in printed
    pd.DataFrame([]).to_parquet(path / "evals.parquet")
    with pytest.raises(RunError, match="no evaluation was finished"):
        before_after(path)
    print_before_after(path)
    assert "no evaluation was finished" in capsys.readouterr().out
