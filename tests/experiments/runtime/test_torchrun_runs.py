"""Whole runs under torchrun, on the command line: the same curves, one run folder, a dead rank."""

import json
import os
import signal
import subprocess

import pandas as pd
import pytest

from experiments.errors import UserError
from experiments.launch import check_launch
from tests.experiments.compose import config as config_of
from tests.experiments.runtime.with_torchrun import (
    SMALL,
    assert_alike,
    begin,
    environment,
    finished,
    metrics,
    wait_for,
)

HELD = {  # weights beside the policy's, which a checkpoint has whole and a rank in shards
    "stale": ("algo=grpo", "train.lag=2"),
    "stale, with an adapter": ("algo=grpo", "train.lag=2", "model.adapter=lora"),
    "average": ("algo=ppo_ewma", "algo.decay=0.5"),
    "average adapter": ("algo=ppo_ewma", "algo.decay=0.5", "model.adapter=lora"),
    "earlier": ("algo=remix", "algo.base_from=1", "algo.reincarnate_at=2"),
    "earlier adapters": (
        "algo=remix",
        "algo.base_from=1",
        "algo.reincarnate_at=4",
        "model.adapter=lora",
    ),
}


def test_the_command_and_the_runtime_go_together(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match="torchrun --nproc-per-node N"):
        check_launch(config_of("runtime=torchrun"))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="add runtime=torchrun or runtime=ray"):
        check_launch(config_of())
    elsewhere = ("engine=auto", "engine.device=cuda:1", "engine.colocate=false")
    with pytest.raises(UserError, match=r"engine.device=cuda:1: each rank generates on the"):
        config_of("runtime=torchrun", *elsewhere)


@pytest.mark.slow
def test_twenty_steps_on_two_ranks_are_those_of_one_process(tmp_path):
    case = [
        "algo=spo",
        "algo.q0=online",
        "algo.q0_samples=4",
        "train.offline_share=0.5",
        "steps=20",
        "eval.further_temperatures=[1]",
    ]
    alone = finished(0, tmp_path / "alone", *case)
    spread = finished(2, tmp_path / "spread", *case)
    assert_alike(spread, alone, rtol=1e-3)
    for name in ("evals.parquet", "further_evals.parquet"):
        rows = [pd.read_parquet(folder / name) for folder in (alone, spread)]
        base = [table[table["step"] == 0].drop(columns="cpu_s") for table in rows]
        pd.testing.assert_frame_equal(*base)
    assert json.loads((spread / "run.json").read_text())["status"] == "finished"


@pytest.mark.slow
def test_a_rank_dies_and_one_process_goes_on_from_the_checkpoint(tmp_path):
    case = [*SMALL, "algo=ppo", "train.sync_every=2"]
    killed = begin(2, *case, "steps=400", f"output_dir={tmp_path / 'killed'}")
    wait_for(lambda: list(tmp_path.glob("killed/mini/*/checkpoints/step-4/state.json")), killed)
    given = f"output_dir={tmp_path / 'killed'}"
    found = subprocess.run(["pgrep", "-f", given], capture_output=True, text=True, check=True)
    (other,) = (int(pid) for pid in found.stdout.split() if "\0RANK=1\0" in environment(pid))
    os.kill(other, signal.SIGKILL)
    assert killed.wait(600) != 0
    (folder,) = tmp_path.glob("killed/mini/*")
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    steps = max(int(kept.name.partition("-")[2]) for kept in folder.glob("checkpoints/step-*")) + 2
    assert begin(0, f"resume={folder}", "runtime=sync", f"steps={steps}").wait() == 0
    assert begin(0, *case, f"steps={steps}", f"output_dir={tmp_path / 'alone'}").wait() == 0
    (undisturbed,) = tmp_path.glob("alone/mini/*")
    one, two = metrics(folder), metrics(undisturbed)
    assert one["step"].tolist() == two["step"].tolist()
    # Rounding may turn a token here or there, so lengths are near and not equal.
    for name in ("response_tokens_mean", "reward_mean", "kl_ref"):
        pd.testing.assert_series_equal(one[name], two[name], rtol=0.05, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize(("first", "then"), [(2, 0), (0, 2)], ids=["ranks first", "alone first"])
def test_what_waits_and_what_was_goes_on_elsewhere(first, then, held, tmp_path):
    case = [*HELD[held], "train.warmup_steps=0", "eval.every=3"]  # there the first of two runs ends
    folder = finished(first, tmp_path / "moved", *case, "steps=3")
    runtime = [] if then else ["runtime=sync"]
    assert begin(then, f"resume={folder}", "steps=5", *runtime).wait() == 0
    alone = finished(0, tmp_path / "alone", *case, "steps=5")
    assert_alike(folder, alone, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["torchrun", "ray"])
def test_what_no_rank_can_begin_for_is_said_once(runtime, tmp_path):
    if runtime == "ray":
        pytest.importorskip("ray", reason="Ray is not installed; pip install -e '.[ray]'")
    given = ["algo=grpo", "model.path=/nowhere", f"output_dir={tmp_path}"]
    started = begin(2, *given, runtime=runtime, stderr=subprocess.PIPE, text=True)
    told = started.communicate()[1]
    assert started.returncode != 0
    assert told.count("error: model.path=/nowhere: no such folder") == 1
