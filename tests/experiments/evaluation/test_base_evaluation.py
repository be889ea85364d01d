"""The base evaluation's cache: only what another run would find too is kept."""

from types import SimpleNamespace

import pytest

from envs.environment import JudgeStats
from envs.problem import Verdict
from experiments import evaluation
from experiments.run_dir.ledger import Ledger


@pytest.mark.parametrize(
    ("verdict", "by_wall_time", "kept"),
    [
        (Verdict.WRONG_ANSWER, 0, True),
        (Verdict.TIME_LIMIT, 0, True),
        (Verdict.TIME_LIMIT, 1, False),
        (Verdict.INFRA_ERROR, 0, False),
    ],
)
def test_an_evaluation_is_kept_unless_a_verdict_is_uncertain(
    tmp_path, monkeypatch, verdict, by_wall_time, kept
):
    calls, file = [], tmp_path / "base" / "x.json"
    judge = SimpleNamespace(stats=JudgeStats(by_wall_time=by_wall_time))
    parts = SimpleNamespace(
        environments=SimpleNamespace(make=lambda: judge),
        ledger=Ledger(),
        eval_prompts=[],
        eval_dialogue=None,
        eval_engine=None,
        tokenizer=None,
    )
    monkeypatch.setattr(evaluation, "_cache_file", lambda *_: file)
    monkeypatch.setattr(
        evaluation, "evaluate", lambda *_: calls.append(1) or [{"verdict": verdict}]
    )
    for _ in range(2):
        rows, _ = evaluation.evaluate_base(None, parts, {}, lambda _: None)
        assert rows == [{"verdict": verdict}]
    assert len(calls) == (1 if kept else 2)
