"""A whole run with the real vLLM: three policies through one instance, and it learns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from experiments.config.preflight import VLLM_RELEASE, vllm_version

ROOT = Path(__file__).resolve().parents[3]
RUN = (
    "algo=spo task=mini engine=vllm steps=20 sandbox=embedded eval.every=0 eval.samples=8 "
    "eval.k=[1] task.choose_problems=60 task.test_problems=60 train.sync_every=2 "
    "algo.q0=monte_carlo algo.q0_samples=8 algo.learning_rate=1e-3"
)
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        vllm_version() != VLLM_RELEASE, reason=f"vLLM {VLLM_RELEASE} is not installed"
    ),
]


def test_a_run_with_stale_weights_learns_and_agrees_with_the_learner(tmp_path):
    done = subprocess.run(
        [sys.executable, "run.py", *RUN.split(), f"output_dir={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    folder = next((tmp_path / "mini").iterdir())
    evals = pd.read_parquet(folder / "evals.parquet")
    accepted = (evals["verdict"] == "ACCEPTED").groupby(evals["step"]).mean()
    assert accepted[20] > 1.5 * accepted[0]
    assert evals["entropy"].isna().all()
    metrics = pd.read_parquet(folder / "metrics.parquet")
    assert metrics["policy_lag"].tolist() == [0, 1] * 10
    assert metrics["budget/weight_syncs"].tolist() == [step // 2 for step in range(1, 21)]
    checked = metrics.set_index("step")["mismatch/mean"].dropna()
    assert checked.index.tolist() == [1, 11, 20]  # also at the end: the rollout policy is stale
    assert checked.max() < 1e-4
    facts = json.loads((folder / "run.json").read_text())
    assert facts["engine"] == f"vllm {VLLM_RELEASE}"
