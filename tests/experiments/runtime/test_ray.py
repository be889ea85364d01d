"""Runs whose writing and judging Ray's actors do: the numbers of one process, whoever dies."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from experiments.rollout.rollouts import Rollouts
from experiments.runtime.base import SINGLE_PROCESS
from tests.experiments.compose import config as config_of

# Ray's own processes take ten seconds of a core to start, and an engine's libraries as many.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs pip install -e '.[ray]'"),
]

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 600  # of any wait, on a machine however busy
SMALL = [
    *("steps=5", "eval.every=0", "eval.samples=2", "eval.k=[1]", "eval.kl_samples=1"),
    *(
        "train.prompts=3",
        "train.group_size=4",
        "train.checkpoint_every=1",
        "algo.learning_rate=1e-3",
    ),
    *("engine.logprob_check_every=2", "engine.logprob_check_samples=2"),
    *("sandbox=embedded", "sandbox.workers=1"),
    *(
        "task.train_problems=6",
        "task.choose_problems=2",
        "task.test_problems=2",
        "task.tune_problems=2",
    ),
]
CASES = {
    "spo": [
        *("algo=spo", "algo.q0=monte_carlo", "algo.q0_samples=2", "steps=3"),
        "eval.further_temperatures=[1]",
    ],
    "grpo at lag 2": ["algo=grpo", "train.lag=2"],
    "grpo synced every 3": ["algo=grpo", "train.sync_every=3"],
    # every batch is of problems that none was of before: their programs are judged in flight
    "half online at lag 2": [
        *("algo=spo", "train.offline_share=0.5", "train.lag=2", "task.train_problems=15"),
    ],
    # the first pass is known ahead, later batches are not
    "curriculum at lag 2": [
        *("algo=grpo", "train.lag=2", "train.curriculum=band", "train.group_size=10"),
        *("steps=6", "task.train_problems=7"),
    ],
    "conversations at lag 1": [
        *("algo=ppo", "algo.value_unit=turn", "task.turns=2", "train.lag=1", "steps=3"),
    ],
}
LAGGED, HALF_ONLINE = CASES["grpo at lag 2"], CASES["half online at lag 2"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from experiments.runtime.ray import Ray

    given = [*SMALL, "algo=grpo", "runtime=ray", "runtime.judges=2"]
    cluster = Ray(config_of(*given, f"output_dir={tmp_path_factory.mktemp('ray')}"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory):
    """The run folder of a case under runtime=sync, made once."""
    made = {}

    def folder(*case):
        if case not in made:
            made[case] = run(tmp_path_factory.mktemp("sync"), *case)
        return made[case]

    return folder


def run(output_dir, *case, ranks=SINGLE_PROCESS, folder=None):
    from experiments.trainer import train

    outcome = train(config_of(*SMALL, *case, f"output_dir={output_dir}"), folder, "", ranks)
    assert outcome.status == "finished", outcome.error
    return outcome.folder


def assert_equal(one, other):
    further = [(folder / "further_evals.parquet").exists() for folder in (one, other)]
    assert further[0] == further[1]
    for table in ("metrics", "evals", *["further_evals"] * further[0]):
        frames = [pd.read_parquet(folder / f"{table}.parquet") for folder in (one, other)]
        kept = [c for c in frames[0] if not c.startswith(("time/", "memory/")) and c != "cpu_s"]
        first, second = (frame[kept] for frame in frames)
        pd.testing.assert_frame_equal(first, second, check_exact=True)
    final = [folder / "checkpoints" / "final" / "model.safetensors" for folder in (one, other)]
    assert final[0].read_bytes() == final[1].read_bytes()


# Batches in flight when a step's is collected, its own included
IN_FLIGHT = {
    "spo": [1, 1, 1],
    "grpo at lag 2": [3, 3, 3, 2, 1],
    "grpo synced every 3": [3, 2, 1, 2, 1],
    "half online at lag 2": [3, 3, 3, 2, 1],
    "curriculum at lag 2": [2, 1, 1, 1, 1, 1],
    # a second answer waits for the judgement of the first
    "conversations at lag 1": [0, 0, 0],
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_on_actors_is_that_of_one_process_to_the_bit(
    case, tmp_path, cluster, in_one_process, monkeypatch
):
    collect, in_flight = Rollouts.collect, []

    def counting(rollouts, step):
        in_flight.append(len(rollouts.engine._prefetched))
        return collect(rollouts, step)

    alone = in_one_process(*CASES[case])
    monkeypatch.setattr(Rollouts, "collect", counting)
    on_actors = run(tmp_path, *CASES[case], "runtime=ray", "runtime.judges=2", ranks=cluster)
    assert in_flight == IN_FLIGHT[case]
    assert_equal(on_actors, alone)


def test_actors_that_die_are_replaced_and_nothing_counts_twice(
    tmp_path, cluster, in_one_process, monkeypatch
):
    import ray

    in_one_process(*HALF_ONLINE)  # before anything is killed
    victims = {2: cluster._engines, 3: cluster._judges, 4: cluster._engines}
    before = [crew.replaced for crew in (cluster._engines, cluster._judges)]
    collect = Rollouts.collect

    def kill_first(rollouts, step):
        if step in victims:
            ray.kill(victims[step].actors[0])
        return collect(rollouts, step)

    monkeypatch.setattr(Rollouts, "collect", kill_first)
    on_actors = run(tmp_path, *HALF_ONLINE, "runtime=ray", "runtime.judges=2", ranks=cluster)
    after = [crew.replaced for crew in (cluster._engines, cluster._judges)]
    assert all(b > a for a, b in zip(before, after, strict=True))
    assert_equal(on_actors, in_one_process(*HALF_ONLINE))


def test_an_actor_that_dies_between_two_answers_is_replaced_to_the_bit(
    tmp_path, cluster, in_one_process, monkeypatch
):
    import ray

    from experiments.runtime.ray_parts import RayEngine

    case = (*CASES["conversations at lag 1"], "engine.batch_size=4")  # parts of one prompt
    alone, generate, going_on = in_one_process(*case), RayEngine.generate, []

    def kill_now_and_then(engine, *given, begun=None, **named):
        if begun is not None:
            going_on.append(begun)
            if len(going_on) in (1, 4):
                ray.kill(cluster._engines.actors[0])
        return generate(engine, *given, begun=begun, **named)

    replaced = cluster._engines.replaced
    monkeypatch.setattr(RayEngine, "generate", kill_now_and_then)
    on_actors = run(tmp_path, *case, "runtime=ray", "runtime.judges=2", ranks=cluster)
    assert cluster._engines.replaced > replaced and len(going_on) > 4
    assert_equal(on_actors, alone)


def begin(output_dir, *overrides):
    given = [*SMALL, *LAGGED, "runtime=ray", f"output_dir={output_dir}", *overrides]
    return subprocess.Popen(
        [sys.executable, "run.py", *given], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition):
    until = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.2)
    return found


def checkpoint(output_dir):
    """The run folder, once it holds a checkpoint of step 2."""
    written = list(output_dir.glob("mini/*/checkpoints/step-2/state.json"))
    return written[0].parents[2] if written else None


def rays_of(pid):
    """Ray's processes beneath this one, and theirs."""
    import psutil

    return psutil.Process(pid).children(recursive=True)


def end(node, how):
    """What `ray stop` does, but to this node of a cluster alone."""
    import psutil

    for each in rays_of(node.pid) if node.poll() is None else ():
        with suppress(psutil.NoSuchProcess):  # it ends with another of them
            each.send_signal(how)
    node.send_signal(how)
    node.wait()


def test_a_learner_that_is_killed_leaves_no_process_and_goes_on(tmp_path, cluster, in_one_process):
    process = begin(tmp_path)
    folder = wait_for(lambda: checkpoint(tmp_path))
    beneath = rays_of(process.pid)
    assert any("raylet" in each.name() for each in beneath)
    process.kill()
    process.wait()
    wait_for(lambda: not [each for each in beneath if each.is_running()])
    run(tmp_path, *LAGGED, "runtime=ray", "runtime.judges=2", ranks=cluster, folder=folder)
    assert_equal(folder, in_one_process(*LAGGED))


def test_a_cluster_that_is_stopped_ends_the_run_in_one_line_and_it_goes_on(
    tmp_path, cluster, in_one_process
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = ["start", "--head", "--block", f"--port={port}", "--num-cpus=1"]
    quiet = ["--include-dashboard=false", "--disable-usage-stats"]
    head = subprocess.Popen(
        [Path(sys.executable).with_name("ray"), *started, *quiet],
        env=os.environ | {"RAY_worker_niceness": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: not socket.socket().connect_ex(("127.0.0.1", port)))
        process = begin(tmp_path, f"runtime.address=127.0.0.1:{port}")
        folder = wait_for(lambda: checkpoint(tmp_path))
    finally:
        end(head, signal.SIGTERM)
    told = process.stderr.read()
    assert process.wait() == 2, told
    assert told.strip().split("\n")[-1].startswith("error: runtime=ray: the Ray cluster has ended")
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert os.listdir(folder / "checkpoints")
    run(tmp_path, *LAGGED, "runtime=ray", "runtime.judges=2", ranks=cluster, folder=folder)
    assert_equal(folder, in_one_process(*LAGGED))
