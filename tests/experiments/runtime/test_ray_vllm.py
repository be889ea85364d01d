"""The real vLLM in one of Ray's actors: the numbers that it gives in the learner's own process."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.replay import sample_log

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs pip install -e '.[ray]'"),
    pytest.mark.skipif(
        vllm_version() != VLLM_RELEASE, reason=f"vLLM {VLLM_RELEASE} is not installed"
    ),
]

ROOT = Path(__file__).resolve().parents[3]
CASE = [
    *("algo=spo", "algo.learning_rate=1e-3", "engine=vllm", "steps=3", "train.lag=1"),
    *("train.prompts=4", "train.group_size=4", "train.keep_samples=true"),
    "engine.logprob_check_every=1",
    *(
        "eval.every=0",
        "eval.samples=4",
        "eval.k=[1]",
        "eval.kl_samples=1",
        "task.choose_problems=8",
        "task.test_problems=8",
    ),
    *("sandbox=embedded", "sandbox.workers=1"),
]


def run(output_dir, *more):
    done = subprocess.run(
        [sys.executable, "run.py", *CASE, *more, f"output_dir={output_dir}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return next((output_dir / "mini").iterdir())


def test_vllm_in_an_actor_writes_what_it_writes_beside_the_learner(tmp_path):
    here, there = run(tmp_path / "here"), run(tmp_path / "there", "runtime=ray")
    for folder in (here, there):
        versions = [set(sample_log.read(folder, step)["version"].to_pylist()) for step in (1, 2, 3)]
        assert versions == [{0}, {0}, {1}]
    for table in ("metrics", "evals"):
        one, other = (pd.read_parquet(folder / f"{table}.parquet") for folder in (here, there))
        same = [c for c in one if not c.startswith(("time/", "memory/")) and c != "cpu_s"]
        pd.testing.assert_frame_equal(one[same], other[same], check_exact=True)
    assert pd.read_parquet(there / "metrics.parquet")["mismatch/mean"][0] < 1e-4
