"""GPUs for runs that share a machine: each gets one of its own, and the rest wait for one.

A process sees the GPUs that CUDA_VISIBLE_DEVICES names, so a run whose variable names a single one
puts learner and engine there. Nothing here imports torch: the variable counts only until then.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable

from envs.caching import cache_root

VISIBLE = "CUDA_VISIBLE_DEVICES"
ANY_GPU = ("auto", "cuda")  # values of `model.device` that take any GPU
POLL_S = 0.5

_claimed: list[int] = []  # descriptors of this process's lock, which ends with it


def visible_gpus() -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES calls the GPUs that this process may use."""
    listed = os.environ.get(VISIBLE)
    if listed is not None:
        return [name.strip() for name in listed.split(",") if name.strip() not in ("", "-1")]
    try:
        import pynvml

        pynvml.nvmlInit()
        return [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # not installed, or no driver
        return []


def claim_gpu(waits: Callable[[], None]) -> str | None:
    """Give this process one GPU until it ends; wait while other processes hold all of them.

    Locks are files of this machine. A GPU that CUDA_VISIBLE_DEVICES names twice takes two runs.
    `waits` is called once if the process has to wait. Returns the GPU's name; None without any.
    """
    gpus = visible_gpus()
    folder = cache_root() / "gpus" / socket.gethostname()
    folder.mkdir(parents=True, exist_ok=True)
    said = False
    while gpus and not _claimed:
        for position, name in enumerate(gpus):
            share = gpus[:position].count(name)
            file = folder / f"gpu-{name.replace('/', '-')}-{share}.lock"
            descriptor = os.open(file, os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            _claimed.append(descriptor)
            os.environ[VISIBLE] = name
            return name
        if not said:
            waits()
        said = True
        time.sleep(POLL_S)
    return gpus[0] if gpus else None
