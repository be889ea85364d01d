"""The real vLLM on each of torchrun's ranks: the numbers of one vLLM beside one learner."""

import json
import subprocess

import pandas as pd
import pytest

from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.replay import sample_log
from tests.experiments.runtime.with_torchrun import SMALL, assert_alike, begin, metrics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(
        vllm_version() != VLLM_RELEASE, reason=f"vLLM {VLLM_RELEASE} is not installed"
    ),
]


def written(ranks, output_dir, *overrides):
    """The run's folder, and what it said."""
    given = [*SMALL, "engine=vllm", "steps=4", "train.keep_samples=true", *overrides]
    given += [f"output_dir={output_dir}", "engine.logprob_check_every=1"]
    run = begin(ranks, *given, stderr=subprocess.PIPE, text=True)
    said = run.communicate()[1]
    assert run.returncode == 0, said
    return next(output_dir.glob("mini/*")), said


@pytest.mark.parametrize(
    "case",
    [
        ["algo=spo", "algo.q0=online", "algo.q0_samples=4", "train.lag=1"],
        ["algo=grpo", "model.adapter=lora", "train.sync_every=2", "train.warmup_steps=0"],
    ],
    ids=["a lag and a reference that writes", "an adapter"],
)
def test_two_ranks_write_what_one_process_writes(case, tmp_path):
    alone, _ = written(0, tmp_path / "alone", *case)
    spread, said = written(2, tmp_path / "spread", *case)
    assert "Traceback" not in said  # nor when vLLM and the ranks end
    for step in (1, 2, 3, 4):
        one, other = (sample_log.read(folder, step) for folder in (alone, spread))
        assert one["version"].to_pylist() == other["version"].to_pylist()
    assert_alike(spread, alone, rtol=1e-3)
    checked = metrics(spread)
    assert checked["mismatch/mean"].max() < 1e-4
    assert checked["mismatch/to_base"].iloc[-1] > 1e-3  # nearer to the trained weights
    evals = [pd.read_parquet(folder / "evals.parquet") for folder in (alone, spread)]
    base = [table[table["step"] == 0].drop(columns="cpu_s") for table in evals]
    pd.testing.assert_frame_equal(*base)
    assert json.loads((spread / "run.json").read_text())["engine"].endswith("on 2 ranks")
