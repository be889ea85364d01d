"""Two judges of the same programs, beside each other; inspect-ai itself is not needed."""

import json

import pandas as pd
import pytest

from experiments import calibrate
from experiments.errors import UserError
from tests.experiments.compose import config


def test_scores_of_both_judges_and_each_program_on_which_they_differ(tmp_path, monkeypatch, capsys):
    verdicts = ["ACCEPTED", "WRONG_ANSWER", "INFRA_ERROR", "ACCEPTED"]
    rows = [("mbpp/11", v, f"# {v}", 0, i, 1, 3) for i, v in enumerate(verdicts)]
    names = ["problem", "verdict", "program", "step", "sample", "passed", "total"]
    pd.DataFrame(rows, columns=names).to_parquet(tmp_path / "evals.parquet")
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"task_id": 11, "test_list": ["assert f()"]}))
    judged = [(False, "why"), (True, "why"), (False, "why")]
    monkeypatch.setattr(calibrate, "inspect_judged", lambda *_: judged)
    calibrate.main(calibrate.Options(tmp_path, file))
    ours, theirs, number, *lines = capsys.readouterr().out.splitlines()
    assert "0.667" in ours and "0.333" in theirs and "3 of 3" in number
    assert lines[1] == "mbpp/11 sample 1: ours WRONG_ANSWER, 1 of 3 tests; theirs why"
    file.write_text(json.dumps({"task_id": 12, "test_list": []}))
    with pytest.raises(UserError, match="mbpp/11"):
        calibrate.main(calibrate.Options(tmp_path, file))


@pytest.mark.slow  # inspect-ai is an extra, and its sampling takes half a minute
def test_inspect_ai_writes_responses_of_the_same_model_to_the_same_prompts(tmp_path):
    pytest.importorskip("inspect_evals")
    row = {"text": "Write a function f that returns 1.", "code": "def f():\n    return 1"}
    row |= {"test_setup_code": "", "challenge_test_list": [], "test_list": ["assert f() == 1"]}
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps(row | {"task_id": i}) for i in (11, 12, 601)))
    run = config(
        "task=mbpp",
        f"task.path={rows}",
        "task.max_response_tokens=16",
        "model=nano",
        "eval.split=test",
        "eval.samples=2",
    )
    targets = {"mbpp/12": row["test_list"]}
    counts = calibrate.inspect_written(run, targets, "local", tmp_path)
    assert counts.loc["mbpp/12"].tolist() == [2, 0] and len(counts) == 1
    everything = calibrate.inspect_written(run, {"mbpp/11": ["assert True"]}, "local", tmp_path)
    assert everything.loc["mbpp/11", "size"] == 2
