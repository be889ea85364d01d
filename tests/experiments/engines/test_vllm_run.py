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
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        vllm_version() != VLLM_RELEASE, reason=f"vLLM {VLLM_RELEASE} is not installed"
    ),
]


def call(*arguments):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """SPO with stale weights: behaviour, trained and reference policy are three."""
    out = tmp_path_factory.mktemp("out")
    sizes = [
        "eval.every=0",
        "eval.samples=8",
        "eval.k=[1]",
        "task.choose_problems=60",
        "task.test_problems=60",
    ]
    options = ["train.sync_every=2", "algo.q0=monte_carlo", "algo.q0_samples=8"]
    options += ["algo.learning_rate=1e-3"]
    done = call(
        *("run.py", "algo=spo", "task=mini", "engine=vllm", "steps=20", "sandbox=embedded"),
        *sizes,
        *options,
        f"output_dir={out}",
    )
    assert done.stderr.count("log-probs of the vllm engine") == 3
    assert "WARNING" not in done.stderr
    return next((out / "mini").iterdir())


def test_it_learns(folder):
    evals = pd.read_parquet(folder / "evals.parquet")
    right = (evals["verdict"] == "ACCEPTED").groupby(evals["step"]).mean()
    assert right[20] > 1.5 * right[0]
    metrics = pd.read_parquet(folder / "metrics.parquet")
    assert metrics["reward_mean"][10:].mean() > metrics["reward_mean"][:10].mean()


def test_lag_and_mismatch_are_in_the_run_folder(folder):
    metrics = pd.read_parquet(folder / "metrics.parquet")
    assert metrics["policy_lag"].tolist() == [0, 1] * 10
    assert metrics["budget/weight_syncs"].tolist() == [step // 2 for step in range(1, 21)]
    checked = metrics.set_index("step")["mismatch/mean"].dropna()
    assert checked.index.tolist() == [
        1,
        11,
        20,
    ]  # at the end too, since the rollout policy is stale
    assert checked.max() < 1e-4
    assert metrics["mismatch/beyond"].dropna().tolist() == [0, 0, 0]
    facts = json.loads((folder / "run.json").read_text())
    assert facts["engine"] == f"vllm {VLLM_RELEASE}"


def test_the_report_copes_without_entropies(folder, tmp_path):
    assert pd.read_parquet(folder / "evals.parquet")["entropy"].isna().all()
    call("-m", "analysis.report", f"runs={folder}", f"out={tmp_path}")
    assert "pass@1" in (tmp_path / "table.md").read_text()
