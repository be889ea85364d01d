"""A run on a Ray cluster of two nodes, one of which is lost: the numbers of one process."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.rollout.rollouts import Rollouts
from tests.experiments.compose import config as config_of
from tests.experiments.runtime.test_ray import (
    HALF_ONLINE,
    SMALL,
    assert_equal,
    end,
    run,
    wait_for,
)

# Each of Ray's nodes takes ten seconds of a core to start.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs pip install -e '.[ray]'"),
]


def start(*arguments):
    quiet = ["--disable-usage-stats", "--block", "--num-cpus=2"]
    return subprocess.Popen(
        [Path(sys.executable).with_name("ray"), "start", *arguments, *quiet],
        env=os.environ | {"RAY_worker_niceness": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture
def nodes(monkeypatch):
    """(address of the cluster, its second node's process)"""
    import ray

    from experiments.runtime.ray import Connection

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host, port = free.getsockname()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # this process has read Ray's settings already
    with ExitStack() as started:
        head = start("--head", f"--port={port}", "--include-dashboard=false")
        started.callback(end, head, signal.SIGKILL)
        wait_for(lambda: not socket.socket().connect_ex((host, port)))
        second = start(f"--address={host}:{port}")
        started.callback(end, second, signal.SIGKILL)
        connection = Connection(f"{host}:{port}")
        wait_for(lambda: len(ray.nodes()) == 2)
        connection.stop()
        yield f"{host}:{port}", second


def test_a_judge_that_dies_and_one_that_dies_with_its_node_change_nothing(tmp_path, nodes):
    import ray

    from experiments.runtime.ray import Ray

    address, second = nodes
    actors = ["runtime=ray", f"runtime.address={address}", "runtime.judges=2"]
    cluster = Ray(config_of(*SMALL, *HALF_ONLINE, *actors, f"output_dir={tmp_path}"))
    collect = Rollouts.collect

    def lose(rollouts, step):
        if step == 2:
            ray.kill(cluster._judges.actors[0])
        if step == 3:
            end(second, signal.SIGKILL)
        return collect(rollouts, step)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Rollouts, "collect", lose)
            spread = run(tmp_path / "two nodes", *HALF_ONLINE, *actors, ranks=cluster)
    finally:
        cluster.stop()
    assert cluster._judges.replaced >= 2
    assert_equal(spread, run(tmp_path / "one process", *HALF_ONLINE))
