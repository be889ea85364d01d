"""Runs on an engine that dies: one in a temporary folder, which a test may kill."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from envs.sandbox.base import Job, Outcome, SandboxError
from envs.sandbox.docker import LABEL, DockerSandbox, connect
from envs.sandbox.python_runtime import image_tag

ENGINE = Path(__file__).parents[3] / ".ci" / "engine"
pytestmark = [pytest.mark.docker, pytest.mark.slow]
JOBS = [Job("import time; time.sleep(0.02); print(input())", (f"{i}", "x")) for i in range(60)]


@pytest.fixture
def own_engine(engine, monkeypatch):
    """The folder of a running engine with the image, which DOCKER_HOST names; then removed."""
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.skip("starting an engine of our own takes root and an installed dockerd")
    folder = tempfile.mkdtemp(prefix="spo-bench-")
    image = b"".join(engine.images.get(image_tag()).save(named=True))
    try:
        subprocess.run([ENGINE, "start", folder], check=True, capture_output=True)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/docker.sock")
        client = connect()
        client.images.load(image)
        client.close()
        yield Path(folder)
    finally:
        subprocess.run([ENGINE, "remove", folder], check=True, capture_output=True)


def kill(folder: Path) -> None:
    os.kill(int((folder / "docker.pid").read_text()), signal.SIGKILL)


def restart(folder: Path, pause: float = 0.0) -> None:
    time.sleep(pause)
    subprocess.run([ENGINE, "start", folder], check=True, capture_output=True)


def check_echoed(results: dict) -> None:
    assert sorted(results) == list(range(len(JOBS)))
    for index, job in enumerate(JOBS):
        assert [run.outcome for run in results[index]] == [Outcome.FINISHED] * 2
        assert [run.stdout.decode().strip() for run in results[index]] == list(job.inputs)


def test_engine_that_comes_back_costs_no_verdict(own_engine):
    back, done = threading.Thread(target=restart, args=(own_engine, 1.0)), {}
    with DockerSandbox(2) as sandbox:
        for index, runs in sandbox.run(JOBS, lambda *_: True):
            done[index] = runs
            if len(done) == 10:
                kill(own_engine)
                back.start()
        back.join()
        check_echoed(done)
        kill(own_engine)  # while nothing runs
        restart(own_engine)
        check_echoed(dict(sandbox.run(JOBS, lambda *_: True)))
    client = connect()
    assert client.api.containers(all=True, filters={"label": LABEL}) == []
    client.close()


def test_engine_that_stays_away_ends_the_run_with_a_word(own_engine):
    with DockerSandbox(2, patience_s=3.0) as sandbox:
        results = sandbox.run(JOBS, lambda *_: True)
        next(results)
        kill(own_engine)
        start = time.monotonic()
        with pytest.raises(SandboxError, match="did not answer for 3 s"):
            list(results)
        assert time.monotonic() - start < 20
