"""Runs that share a machine get a GPU each; the rest wait. The list of GPUs is made up."""

import os
import subprocess
import sys

import pytest

from experiments import gpus
from experiments.errors import UserError
from experiments.gpus import (
    VISIBLE,
    all_gpus_held,
    jobs_at_once,
    largest_gpu,
    visible_gpus,
    with_jobs,
)

CLAIM = """
import os, sys
from pathlib import Path
from experiments.gpus import claim_gpu
waits = lambda: print("waits", flush=True)
print(claim_gpu(Path(sys.argv[1]), waits), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
claim_gpu(Path(sys.argv[1]))  # keeps what it has
sys.stdin.read()
"""


def claiming(folder, visible):
    return subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {VISIBLE: visible},
    )


def test_each_process_gets_a_gpu_of_its_own_and_the_third_waits_for_a_free_one(tmp_path):
    first, second = claiming(tmp_path, "4,6"), claiming(tmp_path, "4,6")
    held = {process.stdout.readline().split()[0]: process for process in (first, second)}
    assert set(held) == {"4", "6"}
    third = claiming(tmp_path, "4,6")
    assert third.stdout.readline() == "waits\n"
    held["6"].kill()  # a dead process holds no lock
    assert third.stdout.readline() == "6 6\n"
    for process in (first, second, third):
        process.kill()
        process.communicate()


def test_whether_all_are_held_is_found_without_holding_one(tmp_path, monkeypatch):
    monkeypatch.setenv(VISIBLE, "")
    assert not all_gpus_held(tmp_path)
    monkeypatch.setenv(VISIBLE, "4,6")
    holding = []
    for held in (False, False, True):
        assert all_gpus_held(tmp_path) == held
        holding.append(claiming(tmp_path, "4,6"))
        holding[-1].stdout.readline()
    for process in holding:
        process.kill()
        process.communicate()


def test_a_gpu_that_is_named_twice_takes_two_runs(tmp_path):
    processes = [claiming(tmp_path, "0,0") for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["0 0\n", "0 0\n"]
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("listed", "found"),
    [("", []), ("-1", []), ("0", ["0"]), ("3, 1", ["3", "1"]), ("GPU-ab/c", ["GPU-ab/c"])],
)
def test_the_visible_gpus_are_those_of_the_variable(monkeypatch, listed, found):
    monkeypatch.setenv(VISIBLE, listed)
    assert visible_gpus() == found


def test_without_the_variable_they_are_the_devices(monkeypatch, tmp_path):
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(gpus, "DEVICES", tmp_path)
    assert visible_gpus() == []
    assert jobs_at_once() == len(os.sched_getaffinity(0))
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_gpus() == ["0", "1"] and jobs_at_once() == 2


def test_a_sweeps_jobs_are_spelt_out(monkeypatch):
    monkeypatch.setenv(VISIBLE, "0,1,2")
    spelt = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=3", "seed=0,1"]
    assert with_jobs(["-m", "jobs=auto", "seed=0,1"]) == spelt
    assert with_jobs(["-m", "jobs=2"])[-1] == "hydra.launcher.n_jobs=2"
    assert with_jobs(["jobs=2"]) == ["jobs=2"]  # of a single run it is an unknown key


@pytest.mark.parametrize(
    ("given", "end"),
    [
        (
            ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu", "jobs=8"],
            "; under Slurm hydra.launcher.array_parallelism=8 bounds the jobs at once",
        ),
        (
            ["jobs=auto", "+hydra/launcher=submitit_slurm"],
            "; under Slurm hydra.launcher.array_parallelism=N bounds the jobs at once",
        ),
        (["jobs=8", "hydra/launcher=basic"], "leave one of the two out"),
    ],
)
def test_jobs_beside_another_launcher_is_refused_and_does_not_replace_it(given, end):
    (jobs,) = (word for word in given if word.startswith("jobs="))
    (launcher,) = (word for word in given if "hydra/launcher" in word)
    with pytest.raises(UserError) as refused:
        with_jobs(["-m", *given])
    text = str(refused.value)
    assert text.startswith(f"{jobs} with {launcher}: jobs= starts processes on this machine")
    assert text.endswith(end)
    assert with_jobs(["-m", "jobs=2", "hydra/launcher=joblib"])[-1] == "hydra/launcher=joblib"


def test_the_largest_gpu_is_what_nvidia_smi_tells(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(VISIBLE, "1,3,3")
    assert largest_gpu() == 0  # no such program
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\n[ "$3" = --id=1,3 ] && echo 24564 && echo 81559\n')
    program.chmod(0o755)
    assert largest_gpu() == 81559 * 2**20
    monkeypatch.setenv(VISIBLE, "MIG-1")  # which it does not know
    assert largest_gpu() == 0
    monkeypatch.setenv(VISIBLE, "")
    assert largest_gpu() == 0
