"""Ray's actors beside a learner on several ranks: the numbers of torchrun alone."""

import copy
import json
import os
import signal

import pandas as pd
import pytest
import torch
import torch.multiprocessing as mp

from algorithms import make
from experiments.engines.hf import HFEngine
from experiments.engines.weight_sync import WeightSync
from experiments.learner.learner import Learner
from experiments.policy.loading import frozen_copy
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy
from experiments.run_dir.ledger import Ledger
from experiments.runtime.base import SINGLE_PROCESS
from experiments.runtime.torchrun import NullEngine, TorchrunRay
from experiments.runtime.torchrun_parts import SyncedEngine
from tests.compose import model_config, train_config
from tests.experiments.learner.learning import GROUP, REWARDS, learner_of, samples_from
from tests.experiments.runtime.test_torchrun import free_port, joined
from tests.experiments.runtime.with_ray import needs_ray
from tests.experiments.runtime.with_torchrun import (
    SMALL,
    begin,
    environment,
    finished,
    metrics,
    wait_for,
)


def update_and_sync(rank, size, port, model, samples, folder):
    """Update the shards once, then sync the engine."""
    ranks = joined(rank, size, port, TorchrunRay)
    policy = Policy(model)
    held = ranks.engine_copy(policy)
    made = make("grpo", learning_rate=1e-3)
    learner = Learner(policy, 0, made, train_config(warmup_steps=0), 10, Ledger(), ranks=ranks)
    engine = HFEngine(held, {1}, 0, 64) if ranks.is_rank_zero else NullEngine(held)
    synced = SyncedEngine(ranks, "engine", engine, learner.policy)
    learner.update(samples, GROUP, None)
    if ranks.is_rank_zero:
        synced.sync(learner.policy)
        torch.save(
            (synced.version, synced.description, held.model.state_dict()), f"{folder}/main.pt"
        )
        ranks.stop()
        return
    ranks.serve()
    torch.save((held.version, {p.device.type for p in held.model.parameters()}), f"{folder}/1.pt")
    ranks.leave()


def stale_weight_sync(base, ranks=SINGLE_PROCESS):
    """Return an engine, a weight sync over an adapter with lag 1, and the learner."""
    initial = Policy(copy.deepcopy(base))
    policy = adapted(initial, model_config(adapter="lora", adapter_rank=4), seed=0)
    engine = HFEngine(frozen_copy(Policy(base)), {1}, 0, 64)
    made, config = make("grpo", learning_rate=1e-3), train_config(warmup_steps=0, lag=1)
    learner = Learner(policy, 0, made, config, 10, Ledger(), ranks=ranks)
    return engine, WeightSync(engine, policy, config), learner


def after_two_batches(base, samples, ranks=SINGLE_PROCESS):
    engine, weight_sync, learner = stale_weight_sync(base, ranks)
    for step in (1, 2):
        learner.update(samples, GROUP, None)
        weight_sync.follow(step)
    return engine, weight_sync


def assert_generates_with(engine, weights):
    for name, value in engine.model.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=1e-5)


def sync_and_load(rank, size, port, base, samples, folder):
    """Save the ranks' state, then load the state of one process and check the weights."""
    ranks = joined(rank, size, port)
    state = after_two_batches(base, samples, ranks)[1].state_dict()
    if ranks.is_rank_zero:
        torch.save(state, f"{folder}/ranks.pt")
    engine, weight_sync, _ = stale_weight_sync(base, ranks)
    theirs, weights = torch.load(f"{folder}/alone.pt")
    weight_sync.load_state_dict(theirs)
    assert_generates_with(engine, weights)
    weight_sync.follow(3)  # then the weights that were next in line
    assert engine.version == 2
    ranks.leave()


@pytest.mark.slow  # two ranks that import everything
def test_the_state_of_a_weight_sync_is_the_same_for_shards_of_an_adapter(tiny, tmp_path):
    samples = samples_from(tiny, REWARDS)
    engine, weight_sync = after_two_batches(tiny, samples)
    alone, weights = weight_sync.state_dict(), engine.model.state_dict()
    torch.save((alone, weights), tmp_path / "alone.pt")
    given = (2, free_port(), tiny, samples, tmp_path)
    mp.start_processes(sync_and_load, given, nprocs=2, start_method="fork")
    ranks = torch.load(tmp_path / "ranks.pt")
    assert (alone["version"], alone["versions"]) == (ranks["version"], ranks["versions"])
    states = (alone, ranks)
    tensors = [[*s["weights"], *(t for _, held in s["pending"] for t in held)] for s in states]
    for one, other in zip(*tensors, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    engine, weight_sync, _ = stale_weight_sync(tiny)
    weight_sync.load_state_dict(ranks)  # one process loads the ranks' state
    assert_generates_with(engine, weights)


def test_rank_zero_alone_holds_whole_weights(tiny, tmp_path):
    samples = samples_from(tiny, REWARDS)
    alone = learner_of(tiny, make("grpo", learning_rate=1e-3))
    alone.update(samples, GROUP, None)
    given = (2, free_port(), tiny, samples, tmp_path)
    mp.start_processes(update_and_sync, given, nprocs=2, start_method="fork")
    version, described, weights = torch.load(tmp_path / "main.pt")
    assert (version, described) == (1, "hf; the learner on 2 ranks")
    assert torch.load(tmp_path / "1.pt") == (1, {"meta"})
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-5)


# with values of the base, programs of the data set, and an adapter
CASES = {
    "spo at lag 2": [
        *("algo=spo", "algo.q0=monte_carlo", "algo.q0_samples=2", "train.offline_share=0.5"),
        "train.lag=2",
    ],
    "grpo with an adapter": ["algo=grpo", "model.adapter=lora", "train.sync_every=2"],
    "ppo_ewma in bfloat16": ["algo=ppo_ewma", "model.dtype=bfloat16", "train.lag=1"],
}
ON_ACTORS = ("runtime.engines=2", "runtime.judges=2")


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_shards_beside_actors_are_those_of_torchrun_to_the_bit(case, tmp_path):
    given = [*CASES[case], "steps=5"]
    ranks = finished(2, tmp_path / "ranks", *given)
    actors = finished(2, tmp_path / "actors", *given, *ON_ACTORS, runtime="ray")
    for table in ("metrics", "evals"):
        one, other = (pd.read_parquet(of / f"{table}.parquet") for of in (actors, ranks))
        kept = [c for c in one if not c.startswith(("time/", "memory/")) and c != "cpu_s"]
        pd.testing.assert_frame_equal(one[kept], other[kept], check_exact=True)
    (weights,) = (actors / "checkpoints" / "final").glob("*.safetensors")
    theirs = ranks / "checkpoints" / "final" / weights.name
    assert weights.read_bytes() == theirs.read_bytes()


@needs_ray
@pytest.mark.slow
def test_a_rank_dies_and_no_actor_is_left_and_one_process_goes_on(tmp_path):
    psutil = pytest.importorskip("psutil")
    case = [*SMALL, "algo=grpo", "train.lag=2", f"output_dir={tmp_path}"]
    killed = begin(2, *case, "steps=400", runtime="ray")
    wait_for(lambda: list(tmp_path.glob("mini/*/checkpoints/step-4/state.json")), killed)
    beneath = psutil.Process(killed.pid).children(recursive=True)
    assert any("raylet" in each.name() for each in beneath)
    (other,) = (each for each in beneath if "\0RANK=1\0" in environment(each.pid))
    os.kill(other.pid, signal.SIGKILL)
    assert killed.wait(600) != 0
    assert not psutil.wait_procs(beneath, timeout=60)[1]
    (folder,) = tmp_path.glob("mini/*")
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    steps = max(int(kept.name.partition("-")[2]) for kept in folder.glob("checkpoints/step-*")) + 2
    assert begin(0, f"resume={folder}", "runtime=sync", f"steps={steps}").wait() == 0
    assert metrics(folder)["step"].tolist() == list(range(1, steps + 1))
