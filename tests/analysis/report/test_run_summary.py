import pandas as pd
import pytest
from rich.console import Console

from analysis.rendering import before_after, before_after_table
from analysis.runs import RunError


def printed(path):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(before_after_table(path))
    return capture.get()


def test_first_and_last_evaluation_side_by_side(tmp_path, make_run):
    path = make_run(tmp_path)
    table = before_after(path).table.set_index("metric")
    evals = pd.read_parquet(path / "evals.parquet")
    shares = (evals["verdict"] == "ACCEPTED").groupby(evals["step"]).mean()
    assert table.loc["pass@1", "before"] == pytest.approx(shares[0])
    after = table.loc["pass@1", "after"]
    assert after == pytest.approx(shares[20])
    text = printed(path)
    for words in ("step 0", "step 20", "pass@1", "pass@10", "distinct of 5", f"{after:.3f}"):
        assert words in text


def test_an_interrupted_run_shows_what_there_is(tmp_path, make_run):
    path = make_run(tmp_path, status="interrupted")
    evals = pd.read_parquet(path / "evals.parquet")
    evals[evals["step"] == 0].to_parquet(path / "evals.parquet")
    text = printed(path)
    assert "before training" in text
    assert "after training" not in text
    pd.DataFrame([]).to_parquet(path / "evals.parquet")
    with pytest.raises(RunError, match="no evaluation was finished"):
        before_after(path)


def test_the_run_says_which_k_and_one_beyond_the_samples_is_told_of(tmp_path, make_run):
    path = make_run(tmp_path, samples=6, config={"eval.k": [2, 6, 50]})
    shown = [name for name in before_after(path).table["metric"] if name.startswith("pass@")]
    assert shown == ["pass@2", "pass@6"]
    assert "pass@50 is left out" in printed(path)
