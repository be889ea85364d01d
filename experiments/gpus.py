"""GPUs for runs that share a machine: each gets one of its own, and the rest wait for one.

A process sees the GPUs that CUDA_VISIBLE_DEVICES names, so a run whose variable names a single one
puts learner and engine there. Nothing here imports torch: the variable counts only until then.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, PositiveInt

from envs.cache_folder import cache_root
from experiments.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"
N_JOBS = "hydra.launcher.n_jobs"  # joblib's number of jobs at once
LAUNCHER, JOBLIB = "hydra/launcher=", "joblib"  # Hydra's key, and the launcher behind `jobs=`
DEVICES = Path("/dev")
GPU_CHOICES = {"auto", "cuda"}  # values of `model.device` that take any GPU
POLL_S = 0.5
ANSWER_S = 20  # of nvidia-smi, which is slow where no process holds the driver

_claimed: list[int] = []  # descriptors of this process's locks, which end with it


def visible_gpus() -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES calls the GPUs that this process may use."""
    listed = os.environ.get(VISIBLE)
    if listed is not None:
        return [name.strip() for name in listed.split(",") if name.strip() not in ("", "-1")]
    found = [file for file in DEVICES.glob("nvidia*") if file.name.removeprefix("nvidia").isdigit()]
    return [str(number) for number in range(len(found))]


def largest_gpu() -> int:
    """Return the bytes of the largest GPU that this process may use; 0 if nvidia-smi tells none."""
    gpus = list(dict.fromkeys(visible_gpus()))
    query = ["--query-gpu=memory.total", "--format=csv,noheader,nounits", f"--id={','.join(gpus)}"]
    if not gpus:
        return 0
    try:
        told = subprocess.run(
            ["nvidia-smi", *query], capture_output=True, text=True, timeout=ANSWER_S, check=True
        )
        return max(int(line) for line in told.stdout.split()) * 2**20
    except (OSError, ValueError, subprocess.SubprocessError):  # not installed, or a part of a GPU
        return 0


def jobs_at_once() -> int:
    """Return how many runs work side by side: one for each GPU, or without one for each core."""
    return len(visible_gpus()) or len(os.sched_getaffinity(0))


def places() -> str:
    """Say what runs side by side are spread over: GPUs, or without one cores."""
    return _counted(jobs_at_once(), "GPU" if visible_gpus() else "core")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


JobsAtOnce = Annotated[
    PositiveInt, BeforeValidator(lambda value: jobs_at_once() if value == "auto" else value)
]


def crowding_line(jobs: int, runs: int, devices: Iterable[str]) -> str | None:
    """Return a warning of more runs at once than there are GPUs, or without one cores; else None.

    `jobs`: how many may run at once; `runs`: how many there are; `devices`: their `model.device`.
    A run without a free GPU waits for one.
    """
    gpus = visible_gpus() if GPU_CHOICES & set(devices) else []
    cores = len(os.sched_getaffinity(0))
    most = len(gpus) or cores
    if min(jobs, runs) <= most:
        return None
    if gpus:
        effect = (
            f"{most} at once, and the others wait for a free one ({VISIBLE}={gpus[0]},{gpus[0]},… "
            "gives a GPU two runs)"
        )
    else:
        effect = "runs share a core, so all take longer, and each needs memory of its own"
    here = _counted(most, "GPU" if gpus else "core")
    return f"jobs={jobs} for {runs} runs on {here}: {effect}; jobs={most} gives each its own"


def with_jobs(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments in which a sweep's `jobs=N` or `jobs=auto` is spelt out.

    Raises UserError for another value, and beside a launcher that is not joblib.
    """
    if not {"-m", "--multirun"} & set(arguments):
        return list(arguments)
    launchers = [word for word in arguments if word.lstrip("+").startswith(LAUNCHER)]
    for word in arguments:
        if word.lstrip("+") == f"{N_JOBS}=0":
            raise UserError(f"{word}; it takes a whole number above 0, or -1 for all cores")
    spelt: list[str] = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key != "jobs":
            spelt.append(argument)
            continue
        if value != "auto" and not (value.isdecimal() and int(value)):
            raise UserError(f"{argument}; it takes a whole number above 0, or auto")
        if others := [word for word in launchers if not word.endswith(f"={JOBLIB}")]:
            raise UserError(_two_launchers(argument, others[0]))
        number = jobs_at_once() if value == "auto" else value
        spelt += [f"{LAUNCHER}{JOBLIB}", f"{N_JOBS}={number}"]
    return spelt


def _two_launchers(jobs: str, launcher: str) -> str:
    """Return the message on `jobs=` beside another launcher than its own."""
    number = jobs.partition("=")[2]
    bound = f"hydra.launcher.array_parallelism={number if number.isdecimal() else 'N'}"
    slurm = f"; under Slurm {bound} bounds the jobs at once" if "slurm" in launcher else ""
    return (
        f"{jobs} with {launcher}: jobs= starts processes on this machine (its launcher is "
        f"{JOBLIB}); leave one of the two out{slurm}"
    )


def claim_gpu(folder: Path | None = None, waits: Callable[[], None] = lambda: None) -> str | None:
    """Give this process one GPU until it ends; wait while other processes hold all of them.

    `folder` holds the locks of the processes that share this machine. `waits` is called once if
    the process has to wait. Returns the GPU's name; None if there is none. A process that has one
    keeps it.
    """
    folder = folder or _locks()
    gpus = visible_gpus()
    if not gpus or _claimed:
        return gpus[0] if gpus else None
    folder.mkdir(parents=True, exist_ok=True)
    name = _lock_free(gpus, folder)
    if name is None:
        waits()
    while name is None:
        time.sleep(POLL_S)
        name = _lock_free(gpus, folder)
    os.environ[VISIBLE] = name
    return name


def all_gpus_held(folder: Path | None = None) -> bool:
    """Return whether other processes hold every GPU that is visible here; False without one."""
    gpus = visible_gpus()
    if not gpus or _claimed:
        return False
    folder = folder or _locks()
    folder.mkdir(parents=True, exist_ok=True)
    free = _lock_free(gpus, folder)
    while _claimed:
        os.close(_claimed.pop())  # which unlocks it
    return free is None


def _locks() -> Path:
    """The folder of this machine's locks."""
    return cache_root() / "gpus" / socket.gethostname()


def _lock_free(gpus: Sequence[str], folder: Path) -> str | None:
    """Lock the first GPU that no other process holds, and return its name; None: all are held."""
    for position, name in enumerate(gpus):
        share = gpus[:position].count(name)  # a GPU that is named twice takes two runs
        file = folder / f"gpu-{name.replace('/', '-')}-{share}.lock"
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        _claimed.append(descriptor)
        return name
    return None
