"""Judging on the nodes of a Ray cluster while this process writes: the numbers of one process."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.experiments.distributed.test_ray import CASES, assert_equal, end, run, wait_for

ray = pytest.importorskip("ray", reason="Ray is not installed; pip install -e '.[ray]'")
from experiments.distributed.ray_cluster import Connection  # noqa: E402
from experiments.distributed.ray_judge import RayJudgingSession  # noqa: E402

pytestmark = pytest.mark.slow
CASE = [*CASES["spo"], "train.offline_share=0.5", "train.lag=1"]


def start(*arguments):
    quiet = ["--disable-usage-stats", "--block", "--num-cpus=2"]
    return subprocess.Popen(
        [Path(sys.executable).with_name("ray"), "start", *arguments, *quiet],
        env=os.environ | {"RAY_worker_niceness": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def nodes():
    """(the cluster's address, its second node)"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host, port = free.getsockname()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as started:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # this process has read Ray's settings already
        head = start("--head", f"--port={port}", "--include-dashboard=false")
        started.callback(end, head, signal.SIGKILL)
        wait_for(lambda: not socket.socket().connect_ex((host, port)))
        second = start(f"--address={host}:{port}")
        started.callback(end, second, signal.SIGKILL)
        joined = Connection("sandbox.nodes", f"{host}:{port}")
        wait_for(lambda: len(ray.nodes()) == 2)
        joined.stop()
        yield f"{host}:{port}", second


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone"), *CASE)


def test_judges_on_nodes_that_die_are_replaced_and_nothing_counts_twice(
    tmp_path, nodes, alone, monkeypatch
):
    address, second = nodes
    known, crews = RayJudgingSession.finish, []

    def finish(session):
        """One judge dies in the second session, one with its node in the fourth."""
        crews.append(session._judge.crew)
        if len(crews) == 2:
            ray.kill(crews[0].actors[0])
        if len(crews) == 4:
            end(second, signal.SIGKILL)
        return known(session)

    monkeypatch.setattr(RayJudgingSession, "finish", finish)
    spread = run(tmp_path, *CASE, f"sandbox.nodes={address}")
    assert (len(crews[0].actors), crews[0].replaced) == (2, 2)
    assert_equal(spread, alone)
