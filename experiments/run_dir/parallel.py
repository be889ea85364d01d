"""A sweep's jobs in several processes at once (hydra/launcher=joblib), and their clean end.

While a job runs, its process stands in a session of its own: Ctrl-C reaches the sweep alone, which
asks each job to end, with a checkpoint, starts no further one, and waits. A job whose sweep was
killed ends in the same way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from experiments.run_dir.interrupts import exit_on_interrupt, terminate_with_parent

STOP = "stop"  # in the sweep's folder: no further job is to begin


def is_parallel(arguments: Sequence[str]) -> bool:
    """Whether the command line names a launcher that runs jobs in other processes."""
    named = [a.partition("=")[2] for a in arguments if a.lstrip("+").startswith("hydra/launcher=")]
    return bool(named) and named[-1] != "basic"


@contextmanager
def waiting(folder: Path) -> Iterator[None]:
    """Around the whole sweep, in its own process; KeyboardInterrupt once all jobs have ended.

    A second Ctrl-C does not wait for the jobs' optimiser steps.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def stop(*_: object) -> None:
        (folder / STOP).touch()
        for file in folder.glob("*.pid"):
            with suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)

    before = {sent: signal.signal(sent, stop) for sent in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)
    if (folder / STOP).exists():
        raise KeyboardInterrupt


@contextmanager
def job(folder: Path, number: int, at_once: int) -> Iterator[bool]:
    """Around one job, in the process that it was given → whether it is to run at all.

    `at_once`: jobs that share this machine's cores, all of them where it is below 1.
    """
    cores = len(os.sched_getaffinity(0))
    os.environ["SPO_BENCH_CORES"] = str(max(1, cores // at_once) if at_once > 0 else 1)
    exit_on_interrupt()
    with suppress(PermissionError):  # it leads a session since the job before
        os.setsid()
    terminate_with_parent()
    sweep = os.getppid()
    mark = folder / f"{number}.pid"
    mark.write_text(str(os.getpid()))
    try:
        yield not (folder / STOP).exists()
    finally:
        mark.unlink(missing_ok=True)
        if os.getppid() != sweep:  # it was killed, and nobody would ever end this process
            os._exit(130)
        exit_on_interrupt()
