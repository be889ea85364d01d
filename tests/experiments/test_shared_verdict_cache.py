"""sandbox.verdict_cache: a run takes verdicts from other runs, and nothing else changes."""

import pandas as pd
import pytest

from envs.judge.judge import JudgingSession
from tests.experiments.compose import assert_same, finished
from tests.experiments.config.test_resume import SMALL
from tests.selection import all_but_slow

CASES = {
    "spo-half-online": [
        *("algo=spo", "algo.q0=monte_carlo", "algo.q0_samples=4", "train.offline_share=0.5")
    ],
    "all-tests": ["algo=ppo", "task.reward.kind=fraction", "judge.early_stop=false"],
}


def run(root, *overrides):
    return finished(*SMALL, "steps=2", "eval.every=0", f"output_dir={root}", *overrides)


# Slow: with all tests a program has more of what is recalled, and in the same way.
@pytest.mark.parametrize("name", all_but_slow(CASES, slow=["all-tests"]))
def test_what_is_recalled_changes_no_bit_and_is_charged(tmp_path, monkeypatch, name):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "cache"))
    executed, execute = [], JudgingSession._execute
    counting = lambda self, plans: (executed.extend(plans), execute(self, plans))[1]  # noqa: E731
    monkeypatch.setattr(JudgingSession, "_execute", counting)
    cache = "sandbox.verdict_cache=true"
    folders = [
        run(tmp_path / "plain", *CASES[name], "sandbox.verdict_cache=false"),
        run(tmp_path / "made", *CASES[name], cache),
    ]
    assert len(executed) > 10
    executed.clear()
    folders.append(run(tmp_path / "recalled", *CASES[name], cache))
    assert not executed
    for other in folders[1:]:
        assert_same(folders[0], other, "metrics", "evals")
    last = [pd.read_parquet(folder / "metrics.parquet").iloc[-1] for folder in folders]
    assert last[0]["time/charged_s"] == 0 < last[2]["time/charged_s"] < last[2]["time/total_s"]
    for times in last:
        waited = sum(times[c] for c in times.index if c.startswith("time/waited_"))
        assert waited <= times["time/total_s"] + 1e-6
    assert last[2]["time/judge_cpu_s"] == pytest.approx(last[1]["time/judge_cpu_s"], rel=0.5)
