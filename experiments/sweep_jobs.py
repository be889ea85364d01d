"""The processes of a sweep's jobs: what a signal does to them, and which GPU each gets.

One after the other, jobs run in the sweep's own process. Ctrl-C ends the run with a checkpoint, and
with it the sweep.

Under hydra/launcher=joblib several jobs run at once, each in a session of its own. Ctrl-C reaches
the sweep alone. It asks every running job to end with a checkpoint, starts no further one, and
waits. A job whose sweep was killed ends in the same way.

Jobs that submitit starts outlive the sweep. Each has its own signals: scancel's SIGTERM, and the
warning that Slurm sends before a time limit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from experiments.gpus import claim_gpu
from experiments.run_dir.interrupts import (
    INTERRUPTED,
    exit_if_orphaned,
    interrupt,
    raise_interrupts,
    terminate_with_parent,
)

RESUMES = "interrupted; the same command resumes"
SUBMITTED = (
    "interrupted; submitted jobs go on, and scancel ends one with a checkpoint; when none is "
    "queued or running, the same command resumes"
)
LIVE_VARIABLE = "SPO_BENCH_LIVE"  # set by a study that shows its runs on the screen
STOP = "stop"  # this file in the sweep's folder: no further job is to start
_sweep = {"process": 0}  # id of the process that is a sweep


def parallel_launcher(arguments: Sequence[str]) -> str | None:
    """Return the launcher that runs jobs in other processes; None: they run in this one.

    joblib takes this process too if it is to run one job at a time.
    """
    values = dict(argument.lstrip("+").partition("=")[::2] for argument in arguments)
    name = values.get("hydra/launcher", "basic")
    alone = name == "basic" or (name == "joblib" and values.get("hydra.launcher.n_jobs") == "1")
    return None if alone else name


def runs_here(arguments: Sequence[str]) -> bool:
    """Whether the jobs of a command line run on this machine, and so on its GPUs."""
    return parallel_launcher(arguments) in (None, "joblib")


def interrupted_line(arguments: Sequence[str]) -> str:
    """Return the last line of a sweep that was interrupted: how it resumes."""
    return RESUMES if runs_here(arguments) else SUBMITTED


@contextmanager
def handling_interrupts(folder: Path, launcher: str | None) -> Iterator[None]:
    """Around all jobs of a sweep: Ctrl-C raises KeyboardInterrupt where jobs have their processes.

    `launcher`: of `parallel_launcher`. joblib's jobs end first; submitit's go on. In one process a
    run handles its interrupts itself.
    """
    _sweep["process"] = os.getpid()
    try:
        if launcher == "joblib":
            with _stopping_jobs(folder):
                yield
            return
        if launcher:
            raise_interrupts()
        yield
    finally:
        _sweep["process"] = 0


@contextmanager
def _stopping_jobs(folder: Path) -> Iterator[None]:
    """Pass Ctrl-C on to the jobs, and raise KeyboardInterrupt when all have ended.

    A second Ctrl-C does not wait for the jobs' optimiser steps.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def stop(*_: object) -> None:
        first = not (folder / STOP).exists()
        (folder / STOP).touch()
        files = list(folder.glob("*.pid"))
        if first:
            jobs = "1 job writes" if len(files) == 1 else f"{len(files)} jobs write"
            with suppress(OSError):  # not print, in the middle of which the signal may have come
                os.write(2, f"stopping: {jobs} a checkpoint; Ctrl-C again hurries\n".encode())
        for file in files:
            with suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if (folder / STOP).exists():
        raise KeyboardInterrupt


def shows_responses() -> bool:
    """Whether a job shows responses (`eval.show`): in a live study, not in other sweeps."""
    return bool(os.environ.get(LIVE_VARIABLE))


def runs_in_sweep_process() -> bool:
    """Whether this process is the sweep itself, so that its end is the sweep's."""
    return _sweep["process"] == os.getpid()


@contextmanager
def worker_process(folder: Path, number: int, jobs_at_once: int) -> Iterator[bool]:
    """Around one of several jobs at once, in its process. Yields whether the job is to run at all.

    `jobs_at_once`: how many jobs share this machine's cores; below 1: one job a core. An interrupt
    ends the job and never its process: joblib would kill the other jobs' processes as well.
    """
    cores = len(os.sched_getaffinity(0))
    os.environ["SPO_BENCH_CORES"] = str(max(1, cores // jobs_at_once) if jobs_at_once > 0 else 1)
    with suppress(PermissionError):  # the process leads a session since the job before
        os.setsid()
    sweep = os.getppid()
    raise_interrupts()
    terminate_with_parent()
    pid_file = folder / f"{number}.pid"
    try:
        pid_file.write_text(str(os.getpid()))
        yield not (folder / STOP).exists()
    except KeyboardInterrupt:
        pass  # before the run had anything to save
    finally:
        pid_file.unlink(missing_ok=True)
        if os.getppid() != sweep:  # the sweep was killed, so nothing else would end this process
            os._exit(INTERRUPTED)
        exit_if_orphaned(sweep)


@contextmanager
def submitted_job() -> Iterator[None]:
    """Around one job of submitit, in its process: its signals end the run with a checkpoint.

    Afterwards submitit's handler of the warning has its turn. It requeues a job that was preempted;
    of one that reached its time limit it raises an error, which is no failure of the run.
    """
    caught: list[int] = []
    warnings = (signal.SIGUSR1, signal.SIGUSR2)
    handlers = {int(n): handler for n in warnings if callable(handler := signal.getsignal(n))}

    def warned(sent: int, _: object) -> None:
        caught.append(sent)
        interrupt()

    for sent in handlers:
        signal.signal(sent, warned)
    raise_interrupts()
    try:
        yield
    except KeyboardInterrupt:
        pass  # before the run had anything to save
    finally:
        for sent, handler in handlers.items():
            signal.signal(sent, handler)
    for first in caught[:1]:
        with suppress(Exception):
            handlers[signal.Signals(first)](first, None)


def claimed_gpu(device: str, name: str) -> str:
    """Claim a GPU for this process and return " on GPU N"; say that it waits if all are held.

    `device`: the run's `model.device`; only auto and cuda take a free one. Without a GPU nothing is
    claimed and the text is empty. `name`: of the job, for the line.
    """

    def waits() -> None:
        print(f"{name}: waiting for a GPU", file=sys.stderr, flush=True)

    gpu = claim_gpu(waits=waits) if device in ("auto", "cuda") else None
    return "" if gpu is None else f" on GPU {gpu}"
