"""Two judges of the same programs, beside each other; inspect-ai itself is not needed."""

import json

import pandas as pd
import pytest

from experiments import calibrate
from experiments.errors import UserError


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
