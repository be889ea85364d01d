"""A sweep that is killed at random moments and started again trains each step of each run once."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pandas
import pytest

from tests.command_line import ROOT, SMALL

STEPS = 3


def start(tmp_path, *launcher):
    given = ["-m", *launcher, *SMALL, "algo=grpo,spo", "seed=0,1,2", f"steps={STEPS}"]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *given, f"output_dir={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def trained(tmp_path):
    """Rows of metrics so far, in all runs."""
    journals = tmp_path.glob("mini/*/metrics.jsonl")
    ended = sum(status == "finished" for status in statuses(tmp_path))
    return STEPS * ended + sum(journal.read_text().count("\n") for journal in journals)


def statuses(tmp_path):
    return [json.loads(info.read_text())["status"] for info in tmp_path.glob("mini/*/run.json")]


def kill_at(sweep, tmp_path, rows):
    """kill -9, once so many rows are there; → when all that it started has ended."""
    deadline = time.monotonic() + 600
    while trained(tmp_path) < rows:
        assert sweep.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(sweep.pid, signal.SIGKILL)
    sweep.communicate()
    while any(alive(file) for file in tmp_path.glob(".sweeps/*/*.pid")):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def alive(file):
    try:
        os.kill(int(file.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_killed_twice_and_started_twice_more_all_six_runs_are_whole(launcher, tmp_path):
    given = []
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
        given = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    for rows in sorted(random.Random(launcher).sample(range(1, 6 * STEPS), 2)):
        kill_at(start(tmp_path, *given), tmp_path, rows)
    last = start(tmp_path, *given)
    out, _ = last.communicate(timeout=600)
    assert last.returncode == 0, out
    assert statuses(tmp_path) == ["finished"] * 6
    for folder in tmp_path.glob("mini/*"):
        metrics = pandas.read_parquet(folder / "metrics.parquet")
        assert metrics["step"].tolist() == list(range(1, STEPS + 1))
        assert metrics["budget/optimiser_steps"].tolist() == list(range(1, STEPS + 1))
