"""Whole runs under torchrun: the curves of one process, one run folder, a dead rank."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.errors import UserError
from experiments.launch import check_launch
from tests.experiments.compose import config as config_of
from tests.experiments.runtime.whole_runs import (
    assert_equal,
    begin,
    checkpoint,
    finished,
    needs_ray,
    resumed,
    wait_for,
)

TORCHRUN = "runtime=torchrun"
HELD = {  # weights beside the policy's, which a checkpoint has whole and a rank in shards
    "stale": ("algo=grpo", "train.lag=2"),
    "stale adapter": ("algo=grpo", "train.lag=2", "model.adapter=lora"),
    "stale with continuations": ("algo=vineppo", "algo.continuations=2", "train.lag=1"),
    "average": ("algo=ppo_ewma", "algo.decay=0.5"),
    "earlier adapters": (
        *("algo=remix", "algo.base_from=1", "algo.reincarnate_at=4", "model.adapter=lora"),
    ),
}
ON_ACTORS = {
    "spo at lag 2": (
        *("algo=spo", "algo.q0=monte_carlo", "algo.q0_samples=2", "train.offline_share=0.5"),
        "train.lag=2",
    ),
    "grpo with an adapter": ("algo=grpo", "model.adapter=lora", "train.sync_every=2"),
}


def test_the_command_and_the_runtime_go_together(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match="torchrun --nproc-per-node N"):
        check_launch(config_of(TORCHRUN))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="add runtime=torchrun or runtime=ray"):
        check_launch(config_of())


@pytest.mark.slow
def test_a_rank_dies_and_one_process_resumes_the_run(tmp_path):
    case = ("algo=ppo", "train.sync_every=2")
    killed = begin(tmp_path, *case, TORCHRUN, "steps=400", ranks=2)
    folder = wait_for(lambda: checkpoint(tmp_path))
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    environments = {}
    for pid in pids:
        try:
            environments[pid] = Path(f"/proc/{pid}/environ").read_text()
            line = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if "\0RANK=1\0" in environments[pid] and str(tmp_path) in line:
            os.kill(pid, signal.SIGKILL)
    assert killed.wait(600) != 0
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    last = max(int(kept.name.partition("-")[2]) for kept in folder.glob("checkpoints/step-*"))
    resumed(folder, f"steps={last + 1}")


@pytest.mark.slow
@pytest.mark.parametrize("held", HELD)
def test_weights_beside_the_policys_are_resumed_in_one_process(held, tmp_path):
    case = (*HELD[held], "train.warmup_steps=0", "eval.every=3")
    folder = finished(tmp_path / "moved", *case, TORCHRUN, "steps=3", ranks=2)
    alone = finished(tmp_path / "alone", *case)
    assert_equal(resumed(folder, "steps=5"), alone, exact=False)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("case", ON_ACTORS)
def test_shards_beside_actors_are_those_of_torchrun_to_the_bit(case, tmp_path):
    ranks = finished(tmp_path / "ranks", *ON_ACTORS[case], TORCHRUN, ranks=2)
    ray = ("runtime=ray", "runtime.engines=2", "runtime.judges=2")
    assert_equal(finished(tmp_path / "actors", *ON_ACTORS[case], *ray, ranks=2), ranks)


@pytest.mark.slow
def test_an_error_of_all_ranks_is_reported_once(tmp_path):
    streams = {"stderr": subprocess.PIPE, "text": True}
    begun = begin(tmp_path, "model.path=/nowhere", TORCHRUN, ranks=2, **streams)
    told = begun.communicate()[1]
    assert begun.returncode != 0
    assert told.count("error: model.path=/nowhere: no such folder") == 1


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.skipif(vllm_version() != VLLM_RELEASE, reason=f"vLLM {VLLM_RELEASE} is not installed")
def test_vllm_on_two_ranks_generates_what_it_generates_in_one_process(tmp_path):
    case = ("engine=vllm", "algo=spo", "algo.q0=online", "algo.q0_samples=4", "train.lag=1")
    alone = finished(tmp_path / "alone", *case)
    spread = finished(tmp_path / "spread", *case, TORCHRUN, ranks=2)
    assert_equal(spread, alone, exact=False)
