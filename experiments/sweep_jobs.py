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
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

from experiments.errors import UserError, one_line
from experiments.gpus import GPU_CHOICES, JOBLIB, LAUNCHER, N_JOBS, claim_gpu, crowding_line
from experiments.run_dir.interrupts import (
    INTERRUPTED,
    exit_if_orphaned,
    interrupt,
    raise_interrupts,
    terminate_with_parent,
)
from experiments.run_dir.records import STUDY_VARIABLE

SLURM = "submitit_slurm"  # the launcher that submits to it
RESUMES_LATER = "the same command resumes"
RESUMES = f"interrupted; {RESUMES_LATER}"
SUBMITTED = (
    "interrupted; submitted jobs go on, and scancel ends one with a checkpoint; when none is "
    "queued or running, the same command resumes"
)
LIVE_VARIABLE = "SPO_BENCH_LIVE"  # set by a study that shows its runs on the screen
HYDRA_RAISES = "HYDRA_FULL_ERROR"  # an error leaves Hydra; else it prints it and exits
LISTEN_S = 0.5
STOP = "stop"  # this file in the sweep's folder: no further job is to start
_sweep = {"process": 0}  # id of the process that is a sweep


def parallel_launcher(arguments: Sequence[str]) -> str | None:
    """Return the launcher that runs jobs in other processes; None: they run in this one.

    joblib takes this process too if it is to run one job at a time.
    """
    values = _values(arguments)
    name = values.get("hydra/launcher", "basic")
    alone = name == "basic" or (name == JOBLIB and values.get(N_JOBS) == "1")
    return None if alone else name


def _values(arguments: Sequence[str]) -> dict[str, str]:
    return dict(argument.lstrip("+").partition("=")[::2] for argument in arguments)


def crowded_sweep(arguments: Sequence[str], devices: Sequence[str]) -> str | None:
    """Return a warning if joblib runs more jobs at once than there are GPUs, or cores; else None.

    `devices`: the `model.device` of each job.
    """
    if parallel_launcher(arguments) != JOBLIB:
        return None
    number = _values(arguments).get(N_JOBS, "")  # without it, or below 0: the cores
    jobs = int(number) if number.isdecimal() else len(os.sched_getaffinity(0))
    return crowding_line(jobs, len(devices), devices)


def check_launcher(arguments: Sequence[str]) -> None:
    """Raise UserError if the jobs are to be submitted to Slurm, and it is not on this machine."""
    if parallel_launcher(arguments) == SLURM and shutil.which("srun") is None:
        raise UserError(
            f"{LAUNCHER}{SLURM}: there is no srun here, so no Slurm; start it on the cluster's "
            "login node; here -m --cfg job checks the command, and jobs=N runs jobs at once"
        )


def runs_here(arguments: Sequence[str]) -> bool:
    """Whether the jobs of a command line run on this machine, and so on its GPUs."""
    return parallel_launcher(arguments) in (None, JOBLIB)


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
        if launcher == JOBLIB:
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

    A second Ctrl-C does not wait for the jobs' optimiser steps. Raises UserError if a process of
    the jobs died, with which joblib ends the others.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def stop(*_: object) -> None:
        first = not (folder / STOP).exists()
        (folder / STOP).touch()
        files = list(folder.glob("*.pid"))
        if first:
            with suppress(OSError):  # not print, in the middle of which the signal may have come
                os.write(2, f"{_stopping(len(files))}\n".encode())
        for file in files:
            with suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    before = os.environ.get(HYDRA_RAISES)
    os.environ[HYDRA_RAISES] = "1"
    try:
        with _heard_by_a_thread(stop):
            yield
    except BrokenProcessPool as error:
        if not (folder / STOP).exists():
            raise UserError(f"{one_line(error)} All jobs ended; {RESUMES_LATER}") from None
    finally:
        os.environ.pop(HYDRA_RAISES)
        os.environ.update({} if before is None else {HYDRA_RAISES: before})
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if (folder / STOP).exists():
        raise KeyboardInterrupt


def _stopping(begun: int) -> str:
    """Return the line after Ctrl-C, when so many jobs have begun."""
    jobs = {0: "no job has begun", 1: "1 job writes a checkpoint"}
    what = jobs.get(begun, f"{begun} jobs write a checkpoint")
    return f"stopping: {what}; Ctrl-C again hurries"


@contextmanager
def _heard_by_a_thread(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `stop` at Ctrl-C from a thread, and keep it from new processes.

    A terminal sends Ctrl-C to the sweep and to what it has started. A process of joblib that is
    still importing would die of it, and joblib would kill the others. So this thread has it
    blocked; the processes that it starts inherit that, until `worker_process`.
    """
    ended = threading.Event()

    def listen() -> None:
        while not ended.is_set():
            if signal.sigtimedwait({signal.SIGINT}, LISTEN_S):
                stop()

    resource_tracker.ensure_running()  # its start, later by joblib, would unblock the signal
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # no longer a terminal's
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


def takes_gpu(is_parallel: bool) -> bool:
    """Whether a job of a sweep is to have a GPU of its own: joblib's, and each run of a study."""
    return is_parallel or STUDY_VARIABLE in os.environ


def claimed_gpu(device: str, name: str) -> str:
    """Claim a GPU for this process and return " on GPU N"; say that it waits if all are held.

    `device`: the run's `model.device`; only auto and cuda take a free one. Without a GPU nothing is
    claimed and the text is empty. `name`: of the job, for the line.
    """

    def waits() -> None:
        print(f"{name}: waiting for a GPU", file=sys.stderr, flush=True)

    gpu = claim_gpu(waits=waits) if device in GPU_CHOICES else None
    return "" if gpu is None else f" on GPU {gpu}"
