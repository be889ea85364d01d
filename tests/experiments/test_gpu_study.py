"""A study in one sitting: missing packages are named; whole seeds are packed, also when stopped."""

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys

import pandas as pd
import pytest

from analysis.runs import PackedStudy
from experiments import gpu_study
from tests.command_line import ROOT


def test_missing_packages_and_other_versions_are_named(monkeypatch):
    assert gpu_study.packages() == "missing: none; versions: as pinned"
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"torch": "2.1+cu1"}[name])
    monkeypatch.setattr(importlib.metadata, "PackageNotFoundError", KeyError)
    missing, other = gpu_study.packages().split("; ")
    assert "omegaconf==" in missing and other == "versions: torch 2.1 for 2.13.0"


@pytest.mark.slow  # three runs, each in a process that imports torch
def test_a_stopped_study_is_packed_with_the_seeds_that_are_whole(tmp_path):
    """The base is there already. SIGTERM comes once seed 0 is packed and seed 1 starts."""
    base = tmp_path / "outputs" / "gpu-study-cpu" / "nano_25m"
    shutil.copytree(ROOT / "assets" / "nano_5m", base)
    command = [sys.executable, "-m", "experiments.gpu_study", "device=cpu", "minutes=60", "jobs=1"]
    command += ["out=packed", "arms=raft_25m,sft_25m"]
    env, said = os.environ | {"PYTHONPATH": str(ROOT)}, ""
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        said += line
        if "2 of 2 runs of seed 0 packed" in line:
            process.send_signal(signal.SIGTERM)
    assert process.wait() == 0 and "\nstopped after" in said, said
    shutil.unpack_archive(tmp_path / "packed" / "study-ladder_gpu.tar.gz", tmp_path, filter="data")
    packed = PackedStudy(tmp_path / "study-ladder_gpu")
    assert {run.seed for run in packed.runs.values()} == {0} and len(packed.runs) == 2
    assert {run["status"] for run in packed.arms if run["seed"]} == {"cut"}
    steps = pd.read_csv(tmp_path / "packed" / "steps.csv")
    assert set(steps["arm"]) >= {"raft_25m", "sft_25m"} and (steps["time/total_s"] > 0).all()
