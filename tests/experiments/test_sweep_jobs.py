"""Signals to a sweep and to its jobs, and what is said of the GPU that a job gets."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

import run
from experiments import sweep_jobs
from experiments.errors import UserError
from experiments.run_dir.records import STUDY_VARIABLE
from experiments.sweep_jobs import (
    RESUMES,
    STOP,
    SUBMITTED,
    check_launcher,
    crowded_sweep,
    handling_interrupts,
    interrupted_line,
    parallel_launcher,
    submitted_job,
    worker_process,
)

JOBLIB = "hydra/launcher=joblib"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch):
    """Signal handlers come back, and the process of the tests leads no session of its own."""
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(sweep_jobs, "terminate_with_parent", lambda: None)
    for name in ("SPO_BENCH_CORES", run.JOBS_VARIABLE):
        monkeypatch.setenv(name, "9")
    handlers = {sent: signal.getsignal(sent) for sent in SIGNALS}
    yield
    for sent, handler in handlers.items():
        signal.signal(sent, handler)


def run_job(folder, launcher, device="auto"):
    """The third job of nine, as Hydra starts it; `launcher`: the launcher's keys."""
    job = {"sweep": {"dir": str(folder)}, "job": {"num": 2}, "launcher": launcher}
    job["overrides"] = {"task": ["seed=2"]}
    config = SimpleNamespace(model=SimpleNamespace(device=device))
    run.job_of_sweep(config, OmegaConf.create(job))


def interrupted(*_, **__):
    return SimpleNamespace(folder=None, status="interrupted", error=None, pass_at={})


@pytest.mark.parametrize("jobs", [[], ["jobs=1"]])
def test_ctrl_c_of_one_job_after_the_other_ends_the_sweep(jobs, tmp_path, call_here, monkeypatch):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    begun = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(run, "run_one", lambda *a, **k: begun.append(a) or interrupted())
    done = call_here("-m", *jobs, "seed=0,1", f"output_dir={tmp_path}")
    assert len(begun) == 1
    assert done.returncode == 130
    assert done.stdout.splitlines()[-1] == RESUMES
    assert "not run" in done.stdout


def press_ctrl_c(folder):
    """Send SIGINT to this process, as a terminal does, and wait until it has been heard."""
    os.kill(os.getpid(), signal.SIGINT)
    while not (folder / STOP).exists():
        time.sleep(0.01)


def test_ctrl_c_of_jobs_at_once_says_so_and_reaches_them(tmp_path, capfd):
    job = subprocess.Popen(["sleep", "60"])
    with pytest.raises(KeyboardInterrupt), handling_interrupts(tmp_path, "joblib"):
        (tmp_path / "0.pid").write_text(str(job.pid))
        press_ctrl_c(tmp_path)
        assert job.wait() == -signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)  # hurries, and says nothing more
    line = "stopping: 1 job writes a checkpoint; Ctrl-C again hurries\n"
    assert capfd.readouterr().err == line


def test_ctrl_c_before_a_job_has_begun_says_so(tmp_path, capfd):
    with pytest.raises(KeyboardInterrupt), handling_interrupts(tmp_path, "joblib"):
        press_ctrl_c(tmp_path)
    assert capfd.readouterr().err == "stopping: no job has begun; Ctrl-C again hurries\n"


def test_ctrl_c_does_not_reach_a_process_of_joblib_that_still_starts(tmp_path):
    def blocked(process):
        status = Path(f"/proc/{process}/status").read_text()
        mask = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
        return bool(mask & 1 << signal.SIGINT - 1)

    with handling_interrupts(tmp_path, "joblib"):
        started = subprocess.Popen(["sleep", "60"])
        assert blocked(started.pid)
        with worker_process(tmp_path, 0, 2):  # it leads a session now
            assert not blocked("thread-self")
    assert not blocked("thread-self")
    started.kill()
    started.wait()


def test_a_process_of_joblib_that_dies_is_one_line_or_part_of_an_interrupt(tmp_path):
    died = BrokenProcessPool("A process was terminated.\n\nMore about it")
    with pytest.raises(UserError) as ended, handling_interrupts(tmp_path, "joblib"):
        raise died
    assert str(ended.value) == (
        "BrokenProcessPool: A process was terminated. All jobs ended; the same command resumes"
    )
    with pytest.raises(KeyboardInterrupt), handling_interrupts(tmp_path, "joblib"):
        press_ctrl_c(tmp_path)
        raise died  # from the processes that were interrupted


def test_a_job_that_is_not_begun_says_nothing(tmp_path, capfd):
    (tmp_path / STOP).touch()
    run_job(tmp_path, {"n_jobs": 2})
    assert capfd.readouterr().err == ""


def test_an_interrupt_while_a_job_loads_ends_the_job_and_not_its_process(tmp_path):
    with worker_process(tmp_path, 0, 2) as is_to_run:
        assert is_to_run and (tmp_path / "0.pid").read_text() == str(os.getpid())
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the job was not interrupted")
    assert list(tmp_path.iterdir()) == []
    signal.raise_signal(signal.SIGTERM)  # between two jobs


def test_a_job_says_which_gpu_it_has_and_that_it_waits_for_one(tmp_path, monkeypatch, capfd):
    def claim(waits):
        waits()
        return "6"

    monkeypatch.setattr(sweep_jobs, "claim_gpu", claim)
    monkeypatch.setattr(run, "one_of_sweep", interrupted)
    run_job(tmp_path, {"n_jobs": 2})
    begun = "job 3/9: waiting for a GPU\njob 3/9 on GPU 6: seed=2\n"
    assert capfd.readouterr().err == begun
    run_job(tmp_path, {"n_jobs": 2}, device="cpu")
    assert capfd.readouterr().err == "job 3/9: seed=2\n"


def test_a_run_of_a_study_has_a_gpu_of_its_own(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sweep_jobs, "claim_gpu", lambda waits: "6")
    monkeypatch.setattr(run, "one_of_sweep", interrupted)
    run_job(tmp_path, {})
    monkeypatch.setenv(STUDY_VARIABLE, "study-s")
    run_job(tmp_path, {})
    assert capfd.readouterr().err == "job 3/9: seed=2\njob 3/9 on GPU 6: seed=2\n"


def test_an_interrupted_job_of_submitit_returns_so_that_the_sweep_waits_on(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(run, "one_of_sweep", interrupted)
    run_job(tmp_path, {})
    assert capfd.readouterr().err == "job 3/9: seed=2\n"  # its allocation says which GPU


@pytest.mark.parametrize("sent", [signal.SIGUSR2, signal.SIGTERM])
def test_a_warning_before_the_time_limit_is_an_interrupt(sent):
    asked = []

    def of_submitit(number, _):
        asked.append(number)
        raise RuntimeError("not requeued")

    signal.signal(signal.SIGUSR2, of_submitit)
    with submitted_job():
        signal.raise_signal(sent)
        raise AssertionError("the run was not interrupted")
    assert asked == ([sent] if sent == signal.SIGUSR2 else [])
    assert signal.getsignal(signal.SIGUSR2) is of_submitit


def test_a_preempted_job_is_requeued_after_its_checkpoint():
    signal.signal(signal.SIGUSR2, lambda *_: sys.exit(7))
    saved = []
    with pytest.raises(SystemExit) as ended, submitted_job():
        try:
            signal.raise_signal(signal.SIGUSR2)
        except KeyboardInterrupt:
            saved.append(True)
    assert saved and ended.value.code == 7


@pytest.mark.parametrize(
    ("arguments", "launcher", "line"),
    [
        (["-m", "seed=0,1"], None, RESUMES),
        ([JOBLIB, "hydra.launcher.n_jobs=1"], None, RESUMES),
        ([JOBLIB, "hydra.launcher.n_jobs=2"], "joblib", RESUMES),
        (["+hydra/launcher=submitit_slurm"], "submitit_slurm", SUBMITTED),
    ],
)
def test_the_line_after_ctrl_c_is_of_the_launcher(arguments, launcher, line):
    assert parallel_launcher(arguments) == launcher
    assert interrupted_line(arguments) == line


def test_more_jobs_at_once_than_cores_or_gpus_are_warned_of(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    given = ["-m", JOBLIB, "hydra.launcher.n_jobs=16"]
    assert crowded_sweep(given, ["auto"] * 9) == (
        "jobs=16 for 9 runs on 2 cores: runs share a core, so all take longer, and each needs "
        "memory of its own; jobs=2 gives each its own"
    )
    assert crowded_sweep(given, ["auto"] * 2) is None  # only two are there
    assert crowded_sweep(["-m", JOBLIB, "hydra.launcher.n_jobs=2"], ["auto"] * 9) is None
    assert crowded_sweep(["-m", "hydra/launcher=submitit_slurm"], ["auto"] * 9) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert crowded_sweep(given, ["cuda"] * 9) == (
        "jobs=16 for 9 runs on 4 GPUs: 4 at once, and the others wait for a free one "
        "(CUDA_VISIBLE_DEVICES=4,4,… gives a GPU two runs); jobs=4 gives each its own"
    )
    assert "on 2 cores" in crowded_sweep(given, ["cpu"] * 9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    assert "jobs=2 for 9 runs on 1 GPU" in crowded_sweep(["-m", JOBLIB], ["auto"] * 9)  # the cores


def test_slurm_is_looked_for_before_a_job_is_submitted(monkeypatch):
    given = ["-m", "hydra/launcher=submitit_slurm", "seed=0,1"]
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match="there is no srun here"):
        check_launcher(given)
    check_launcher(["-m", "seed=0,1"])
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    check_launcher(given)
