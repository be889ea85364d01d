"""Runs on Ray's actors: the numbers of one process, whoever dies."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.errors import UserError
from experiments.policy.policy import Policy
from experiments.rollout.rollouts import Rollouts
from experiments.runtime.base import SINGLE_PROCESS
from tests.experiments.compose import config as config_of
from tests.experiments.runtime.whole_runs import (
    SMALL,
    assert_equal,
    begin,
    checkpoint,
    finished,
    needs_ray,
    wait_for,
)

pytestmark = needs_ray
RAY = ("runtime=ray", "runtime.judges=2")
CASES = {
    "spo": ("algo=spo", "algo.q0=monte_carlo", "algo.q0_samples=2", "steps=3"),
    "grpo synced every 3": ("algo=grpo", "train.sync_every=3"),
    # every batch is of problems that none was of before: their programs are judged in flight
    "half online at lag 2": (
        *("algo=spo", "train.offline_share=0.5", "train.lag=2", "task.train_problems=15"),
    ),
    "continuations at lag 1": (
        *("algo=vineppo", "algo.continuations=2", "train.lag=1", "steps=3"),
    ),
    "conversations at lag 1": (
        *("algo=ppo", "algo.value_unit=turn", "task.turns=2", "train.lag=1", "steps=3"),
        "engine.batch_size=4",  # parts of one prompt
    ),
}
IN_FLIGHT = {  # batches in flight when a step's is collected, its own included
    "spo": [1, 1, 1],
    "grpo synced every 3": [3, 2, 1, 2, 1],
    "half online at lag 2": [3, 3, 3, 2, 1],
    "continuations at lag 1": [0, 0, 0],  # they are judged before the next batch
    "conversations at lag 1": [0, 0, 0],  # a second answer waits for the first's judgement
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from experiments.runtime.ray import Ray

    cluster = Ray(config_of(*SMALL, *RAY, f"output_dir={tmp_path_factory.mktemp('ray')}"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory):
    """Return the run folder of a case under runtime=sync, made once."""
    made = {}

    def folder(*case):
        if case not in made:
            made[case] = run(tmp_path_factory.mktemp("sync"), *case)
        return made[case]

    return folder


def run(output_dir, *case, ranks=SINGLE_PROCESS, folder=None):
    from experiments.trainer import train

    outcome = train(config_of(*SMALL, *case, f"output_dir={output_dir}"), folder, ranks)
    assert outcome.status == "finished", outcome.error
    return outcome.folder


def end(node, how):
    """End this node of a cluster alone, and all of its processes."""
    import psutil

    beneath = psutil.Process(node.pid).children(recursive=True) if node.poll() is None else ()
    for each in beneath:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(how)
    node.send_signal(how)
    node.wait()


def start_node(*arguments):
    quiet = ("--disable-usage-stats", "--block", "--num-cpus=2")
    return subprocess.Popen(
        [Path(sys.executable).with_name("ray"), "start", *arguments, *quiet],
        env=os.environ | {"RAY_worker_niceness": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def start_head(address):
    port = int(address.rpartition(":")[2])
    head = start_node("--head", f"--port={port}", "--include-dashboard=false")
    wait_for(lambda: not socket.socket().connect_ex(("127.0.0.1", port)))
    return head


# First: it joins a cluster of its own, and a process can be in one alone.
@pytest.mark.slow
def test_a_node_that_is_lost_changes_nothing(tmp_path, monkeypatch):
    import ray

    from experiments.runtime.ray import Ray

    case, address = CASES["half online at lag 2"], free_address()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    head = start_head(address)
    second = start_node(f"--address={address}")
    collect = Rollouts.collect

    def lose(rollouts, step):
        if step == 3:
            end(second, signal.SIGKILL)
        return collect(rollouts, step)

    try:
        joined = (*RAY, f"runtime.address={address}")
        cluster = Ray(config_of(*SMALL, *case, *joined, f"output_dir={tmp_path}"))
        wait_for(lambda: len(ray.nodes()) == 2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Rollouts, "collect", lose)
            spread = run(tmp_path / "two nodes", *case, *joined, ranks=cluster)
        cluster.stop()
    finally:
        end(head, signal.SIGKILL)
    assert_equal(spread, run(tmp_path / "one process", *case))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_on_actors_is_that_of_one_process_to_the_bit(
    case, tmp_path, cluster, in_one_process, monkeypatch
):
    collect, in_flight = Rollouts.collect, []

    def counting(rollouts, step):
        in_flight.append(len(rollouts.responder.engine._prefetched))
        return collect(rollouts, step)

    monkeypatch.setattr(Rollouts, "collect", counting)
    on_actors = run(tmp_path, *CASES[case], *RAY, ranks=cluster)
    assert in_flight == IN_FLIGHT[case]
    monkeypatch.undo()
    assert_equal(on_actors, in_one_process(*CASES[case]))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["half online at lag 2", "conversations at lag 1"])
def test_actors_that_die_change_nothing_and_nothing_counts_twice(
    case, tmp_path, cluster, in_one_process, monkeypatch
):
    import ray

    from experiments.runtime.ray import RayEngine

    alone, generate, killed = in_one_process(*CASES[case]), RayEngine.generate, []

    def kill_now_and_then(engine, request, finished=None):
        victims = {2: cluster.engine_actors, 3: cluster.judge_actors, 5: cluster.engine_actors}
        killed.append(len(killed) + 1)
        if killed[-1] in victims:
            ray.kill(victims[killed[-1]][0], no_restart=False)
        return generate(engine, request, finished)

    monkeypatch.setattr(RayEngine, "generate", kill_now_and_then)
    on_actors = run(tmp_path, *CASES[case], *RAY, ranks=cluster)
    assert len(killed) >= 5
    assert_equal(on_actors, alone)


@pytest.mark.slow
def test_a_killed_learner_leaves_no_process_and_its_run_resumes(tmp_path, in_one_process):
    import psutil

    process = begin(tmp_path, "algo=grpo", "train.sync_every=3", *RAY)
    folder = wait_for(lambda: checkpoint(tmp_path))
    beneath = psutil.Process(process.pid).children(recursive=True)
    assert any("raylet" in each.name() for each in beneath)
    process.kill()
    process.wait()
    wait_for(lambda: not [each for each in beneath if each.is_running()])
    case = CASES["grpo synced every 3"]
    assert_equal(run(tmp_path, *case, folder=folder), in_one_process(*case))


@pytest.mark.slow
def test_a_cluster_that_ends_ends_the_run_in_one_line(tmp_path):
    address = free_address()
    head = start_head(address)
    try:
        given = ("algo=grpo", "train.lag=2", *RAY, f"runtime.address={address}")
        process = begin(tmp_path, *given, "steps=100", stderr=subprocess.PIPE, text=True)
        folder = wait_for(lambda: checkpoint(tmp_path))
    finally:
        end(head, signal.SIGTERM)
    told = process.stderr.read()
    assert process.wait() != 0
    assert "runtime=ray: the Ray cluster has ended" in told, told
    assert os.listdir(folder / "checkpoints")


def test_an_address_at_which_nothing_answers_is_refused_at_once():
    from experiments.runtime.ray import Cluster

    begun, address = time.monotonic(), free_address()
    with pytest.raises(UserError, match=rf"runtime.address={address}: .*Connection refused"):
        Cluster(address)
    assert time.monotonic() - begun < 30  # Ray itself would try for minutes


def test_a_new_actor_repeats_the_requests_whose_keys_it_has_to_keep(tiny):
    from experiments.runtime.ray_actors import EngineActor

    def actor():
        made = EngineActor(None)
        made._engine, made._version = HFEngine(Policy(tiny), {1}, 0, 64), 0
        made._tokenizer = SimpleNamespace(batch_decode=lambda rows, **_: ["" for _ in rows])
        return made

    prompts, sampling = [[2, 7, 9, 30], [2, 5]], Sampling(8)
    first = Request(prompts, [[1, 2], [3]], sampling, keep=True)
    other = Request([[4, 4]], [[5]], sampling, keep=True)  # of another part
    began, late = actor(), actor()
    groups = began.generate(0, [], True, first, []).groups
    began.generate(0, [], True, other, [first])
    begun = [[[*answer.tokens, 7] for answer in group] for group in groups]
    second = Request(prompts, [[11, 12], [13]], sampling, begun)
    found = [one.generate(0, [], True, second, [first, other]).groups for one in (began, late)]
    assert found[0] == found[1]
    for one in (began, late):  # of the other part
        assert [len(each) for each in one._engine._kept._kept.values()] == [1]


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.skipif(vllm_version() != VLLM_RELEASE, reason=f"vLLM {VLLM_RELEASE} is not installed")
def test_vllm_in_an_actor_generates_what_it_generates_beside_the_learner(tmp_path):
    case = ("algo=spo", "engine=vllm", "train.lag=1", "engine.logprob_check_every=1")
    here, there = (
        finished(tmp_path / name, *case, *more) for name, more in (("a", ()), ("b", RAY))
    )
    assert_equal(there, here)
