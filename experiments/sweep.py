"""Sweeps: `run.py -m` runs every combination of a command line, here or under Slurm."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

from omegaconf import DictConfig

from envs.command_line import CONF, parse_arguments
from experiments.config.checks import parse
from experiments.config.composition import config_of, jobs_of
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.gpus import ANY_GPU, visible_gpus
from experiments.launch import FAILED, INTERRUPTED, run_alone, torchrun_ranks
from experiments.run_dir.interrupts import exit_on_interrupt, interrupt, raise_interrupts
from experiments.runner import (
    RESUMES,
    Again,
    Job,
    Runner,
    Workers,
    check_runs,
    claim_own_gpu,
    print_table,
    state,
)


@dataclass
class SweepOptions:
    """The keys of a sweep itself."""

    # processes at once; by default one for each GPU if there are several, else jobs run here
    jobs: Workers | None = None
    again: Again = "never"  # always: begin all runs anew, also those that have finished


def run_sweep(arguments: Sequence[str]) -> int:
    """Run every combination of a command line with -m; returns the exit status.

    Raises UserError, before the first run, if any job is invalid.
    """
    keys = [each.name for each in fields(SweepOptions)]
    own = [word for word in arguments if word.partition("=")[0] in keys]
    words = [word for word in arguments if word not in own and not word.startswith("hydra")]
    slurm = len(words) + len(own) < len(arguments)
    try:
        options = parse_arguments(SweepOptions, own)
    except ValueError as error:
        raise UserError(str(error)) from None
    if torchrun_ranks():
        raise UserError("torchrun with -m: start the jobs one by one, each with torchrun")
    overrides = jobs_of(words)
    configs = [config_of(job) for job in overrides]
    jobs = sweep_jobs(overrides, configs)
    check_runs(configs)
    interrupted = False
    try:
        if slurm:
            exit_on_interrupt("interrupted; submitted jobs go on; scancel ends one")
            submit([word for word in arguments if word not in own])
            for job in jobs:
                job.end = replace(state(job.config), kept=False)
        else:
            several = len(visible_gpus()) > 1 and configs[0].model.device in ANY_GPU
            workers = options.jobs or (len(visible_gpus()) if several else 0)
            if claim_own_gpu(jobs):  # in the process of one job
                workers = 0
            Runner(jobs, workers, options.again).run()
    except KeyboardInterrupt:
        interrupted = True
    failures = print_table(jobs)
    if folders := ",".join(map(str, runs_of(jobs))):
        print(f"report: make report RUNS={folders}")
    if interrupted:
        print(RESUMES)
    return INTERRUPTED if interrupted else FAILED if failures else 0


def sweep_jobs(overrides: Sequence[Sequence[str]], configs: Sequence[RunConfig]) -> list[Job]:
    """Return the jobs of a sweep, labelled by their number and what not all of them share."""
    shared = set.intersection(*map(set, overrides))
    width = len(str(len(overrides)))
    jobs = []
    for number, (own, config) in enumerate(zip(overrides, configs, strict=True), 1):
        label = " ".join([f"{number:0{width}}", *(word for word in own if word not in shared)])
        jobs.append(Job(label, tuple(own), config))
    return jobs


def runs_of(jobs: Sequence[Job]) -> list[Path]:
    """Return the folders that have runs of these jobs, each once."""
    return list(dict.fromkeys(job.end.folder.parent for job in jobs if job.end.folder))


# Slurm.


def submit(arguments: Sequence[str]) -> None:
    """Run a sweep with Hydra's launcher, which submits each job to Slurm; return when all ended.

    Raises UserError if there is no such launcher.
    """
    import hydra
    from hydra.errors import HydraException

    sys.argv[1:] = arguments
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come here
    try:
        hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(_submitted)()
    except HydraException as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{reason}; `pip install -e '.[launch]'` installs submitit") from error


def _submitted(composed: DictConfig) -> None:
    """Run, resume or keep one job, in the process that submitit starts it in."""
    config = parse(composed)
    found = state(config)
    if not found.kept:
        with _ending_with_a_checkpoint():
            run_alone(config, found.folder)


@contextmanager
def _ending_with_a_checkpoint() -> Iterator[None]:
    """Interrupt the run at the signals of submitit: scancel's, and the one before a time limit.

    Afterwards submitit's own handler has its turn, which requeues a job that was preempted.
    """
    caught: list[int] = []
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    handlers = {n: handler for n in numbers if callable(handler := signal.getsignal(n))}

    def warned(number: int, _: object) -> None:
        caught.append(number)
        interrupt()

    for number in handlers:
        signal.signal(number, warned)
    raise_interrupts()
    with suppress(KeyboardInterrupt):  # before the run had anything to save
        yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for first in caught[:1]:
        with suppress(Exception):  # of a time limit it raises an error, which is none of the run
            handlers[signal.Signals(first)](first, None)
