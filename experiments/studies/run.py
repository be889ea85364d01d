"""Run a study: all its runs in parallel, resumable, then its report.

python -m experiments.studies.run study=mini
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from envs.command_line import quiet_when_unread
from experiments.config.command_line import Again
from experiments.config.dependencies import noting_missing_packages
from experiments.errors import UserError
from experiments.gpus import JobsAtOnce, jobs_at_once
from experiments.run_dir.interrupts import raise_interrupts
from experiments.studies.cli import (
    FAILED,
    check_runs,
    choose,
    run_command,
    say,
    split_arguments,
)

if TYPE_CHECKING:
    from experiments.studies.jobs import Job
    from experiments.studies.runner import Runner
    from experiments.studies.study import Study

HELP = """\
Run a study: every arm on every seed, in parallel, then the report.

  python -m experiments.studies.run study=NAME [jobs=N] [seeds=0,1] [arms=A,B] [plan=true]
                                    [again=changed] [live=true] [KEY=VALUE ...]

KEY=VALUE overrides a key of every run, as of run.py.

The same command again keeps finished runs, resumes stopped ones, and starts the others. Ctrl-C
stops it with a checkpoint of each run. output_dir/NAME-OF-THE-STUDY/ holds the run
folders, logs/ (the output of each run), arms.json (which run belongs to which arm),
contrasts.json (the pairs of arms in gains and claims), and report/.
"""


@dataclass
class Options:
    """The command's own keys."""

    study: str = "mini"  # a file of conf/study/, or FILE.yaml
    # parallel runs; by default, and with auto, one for each GPU, or without one for each core
    jobs: JobsAtOnce = field(default_factory=jobs_at_once)
    seeds: str | None = None  # only these of the study's seeds, with commas between them
    arms: str | None = None  # only these of the study's arms, and the arms they start from
    # changed: begin runs anew that were made with other code, data, model or packages; always: all
    again: Again = "never"
    # print the runs to do and their estimated time, then exit; before any run has finished, a few
    # steps of some arms are trained for up to a minute to time them, if the runs take much longer
    plan: bool = False
    live: bool = False  # one run at a time, with its own output on the screen instead of in logs/


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    return run_command(arguments, HELP, Options, _run)


def _run(arguments: Sequence[str]) -> int:
    from experiments.studies.study import read

    options, overrides = split_arguments(Options, arguments)
    study = read(options.study)
    if options.plan:
        with noting_missing_packages() as missing:
            return _plan(study, options, overrides, missing)
    runner, folder, study_lock = _open(study, options, overrides)
    check_runs([runner.config(job) for job in runner.left() if not job.needs])
    raise_interrupts()
    _announce(runner)
    if runner.clock.steps:
        _say_time(runner, "the finished runs")
    runner.run()
    os.close(study_lock)
    return _finish(study, runner, folder)


def _open(study: Study, options: Options, overrides: list[str]) -> tuple[Runner, Path, int]:
    """Print the study's question; return its runner, which has looked at the runs, folder and lock.

    Raises UserError.
    """
    from experiments.config.preflight import make_output_folder
    from experiments.studies.jobs import jobs_of
    from experiments.studies.runner import Runner

    seeds = choose("seeds", options.seeds, study.seeds)
    arms = choose("arms", options.arms, list(study.arms))
    print(f"{study.name}: {study.question}")
    if study.took:
        print(f"It took {study.took}.", flush=True)
    for item, reason in study.left_out.items():
        print(f"left out: {item}: {reason}")
    jobs = jobs_of(study, seeds, arms, overrides)
    workers = 1 if options.live else options.jobs
    runner = Runner(jobs, workers, say, again=options.again, live=options.live)
    folder = runner.log(jobs[-1]).parents[1]
    make_output_folder(str(folder.parent))
    folder.mkdir(exist_ok=True)
    study_lock = _lock(folder)
    runner.look()
    return runner, folder, study_lock


def _plan(study: Study, options: Options, overrides: list[str], missing: Sequence[str]) -> int:
    """Print the runs to do, where, and their estimated time. Returns the exit status.

    `missing`: lines of packages that are not installed here, as far as the checks come.
    """
    from experiments.studies.estimate import arms_to_time

    runner, folder, study_lock = _open(study, options, overrides)
    for line in missing:
        print(f"WARNING: {line}", file=sys.stderr)
    left = runner.left()
    timed = bool(runner.clock.steps)  # then finished runs say how long the others take
    if not (timed or missing):
        check_runs([runner.config(job) for job in left if not job.needs], starts=False)
    raise_interrupts()
    _print_arms(study, runner, folder)
    _announce(runner)
    configs = [runner.config(job) for job in left]
    if timed and left:
        _say_time(runner, "the finished runs")
    elif missing:
        say("not timed: a package that the runs need is not installed here")
    elif left and (most := arms_to_time(configs)):
        _time_arms(runner, most)
    elif left:
        say(f"{sum(c.steps for c in configs)} steps in all: too few to time some of them first")
    os.close(study_lock)
    return 0


def _print_arms(study: Study, runner: Runner, folder: Path) -> None:
    """Print a line for each arm: its seeds, how its runs stand, and its own overrides."""
    compared = [job for job in runner.jobs if not job.trial]
    arms = list(dict.fromkeys(job.arm for job in compared))
    seeds = list(dict.fromkeys(job.seed for job in compared))
    short = len(runner.jobs) - len(compared)
    more = f", and {short} short runs that choose {study.choice.key}" if study.choice else ""
    print(f"{len(arms)} arms × {len(seeds)} seeds = {len(compared)} runs{more}, in {folder}:")
    for arm in arms:
        jobs = [job for job in compared if job.arm == arm]
        done = sum(job in runner.ended for job in jobs)
        after = [f"{key}: {parent}" for key, parent in study.arms[arm].parents.items()]
        words = " ".join([f"steps={runner.config(jobs[0]).steps}", *study.arms[arm].overrides])
        own = ", ".join([words, *after])
        print(f"  {arm}: seeds {', '.join(str(job.seed) for job in jobs)}, {done} finished; {own}")


def _lock(folder: Path) -> int:
    from experiments.run_dir.atomic_files import lock

    try:
        return lock(folder)
    except UserError:
        raise UserError(f"{folder}: this study is running; wait for it or stop it first") from None


def _announce(runner: Runner) -> None:
    """Print the number of runs to do, how many at a time on what, and what has changed since."""
    from experiments.gpus import crowding_line, places
    from experiments.sweep import changes_line, later_runs_line

    left = runner.left()
    stopped = sum(state.folder is not None for state in runner.states.values())
    say(
        f"{len(runner.jobs)} runs: {len(runner.jobs) - len(left)} finished, {stopped} to resume, "
        f"{len(left) - stopped} to start; {runner.workers} at a time on {places()}"
    )
    devices = {runner.config(job).model.device for job in left}
    if line := crowding_line(runner.workers, len(left), devices):
        say(f"WARNING: {line}")
    later = later_runs_line(runner.found) if runner.again != "always" else None
    for line in filter(None, [changes_line(runner.found, runner.again), later]):
        say(line)


def _say_time(runner: Runner, basis: str) -> None:
    """Print how long the runs to do will take, and until when; `basis`: what says so."""
    from experiments.studies.estimate import format_duration

    seconds = runner.seconds_left()
    end = time.strftime("%H:%M", time.localtime(time.time() + seconds))
    say(f"about {format_duration(seconds)}, until {end}, estimated from {basis}")


def _time_arms(runner: Runner, most: int) -> None:
    """Time a few steps of at most `most` arms, and print the time that follows from them."""
    from experiments.gpus import all_gpus_held
    from experiments.studies.estimate import TIMED_S
    from experiments.studies.runner import time_few_steps

    if all_gpus_held():
        say("not timed: other processes hold all GPUs")
        return
    jobs = {
        job: (runner.overrides(job), runner.config(job))
        for job in arms_to_start_with(runner.left(), most)
    }
    if timed := time_few_steps(jobs, runner.workers, runner.clock, say):
        _say_time(runner, f"a few timed steps of {', '.join(job.arm for job in timed)}")
        return
    names = ", ".join(job.arm for job in jobs)
    say(
        f"not timed: a few steps of {names} take more than {TIMED_S} s; once a run of the study "
        "has finished, plan=true estimates the rest"
    )


def arms_to_start_with(jobs: list[Job], most: int) -> list[Job]:
    """Return an independent job of each of at most `most` arms: first one of each algorithm.

    If there are more algorithms than `most`, they are evenly spread.
    """
    from experiments.studies.jobs import config_with_seed

    of_arm: dict[str, Job] = {}
    of_algorithm: dict[str, Job] = {}
    for job in jobs:
        if not job.needs:
            of_arm.setdefault(job.arm, job)
    for job in of_arm.values():
        of_algorithm.setdefault(config_with_seed(job.overrides, job.seed).algo.name, job)
    first = list(of_algorithm.values()) or jobs[:1]
    if len(first) > most:
        return [first[i * len(first) // most] for i in range(most)]
    return [*first, *(job for job in of_arm.values() if job not in first)][:most]


def _finish(study: Study, runner: Runner, folder: Path) -> int:
    """Write arms.json and contrasts.json, print the failures, and make the report.

    Returns the exit status.
    """
    _write_arms(runner, folder)
    (folder / "contrasts.json").write_text(json.dumps(study.contrasts, indent=1) + "\n")
    failed = [job for job, end in runner.ended.items() if end.status != "finished"]
    for job in failed:
        print(f"{runner.ended[job].status}: {job.label}: {runner.ended[job].error}")
    reported = make_report(study, folder, {job.arm for job in runner.ended if job not in failed})
    return FAILED if failed or not reported else 0


def make_report(study: Study, folder: Path, finished: Collection[str]) -> bool:
    """Write the report of a study's run folders into `folder`/report; return whether it was made.

    `finished`: the arms with a finished run.
    """
    report = [sys.executable, "-m", "analysis.report", f"runs={folder}", f"out={folder / 'report'}"]
    report += report_keys(study, finished)
    print(f"report: python {' '.join(report[1:])}", flush=True)
    return subprocess.run(report, cwd=Path.cwd(), env=_environment()).returncode == 0


def report_keys(study: Study, finished: Collection[str]) -> list[str]:
    """What the study names for its report; the control only if its arm is among the finished."""
    margin = [] if study.margin is None else [f"margin={study.margin:g}"]
    return margin + ([f"control={study.control}"] if study.control in finished else [])


def _write_arms(runner: Runner, folder: Path) -> None:
    """arms.json: a list of {arm, seed, trial, status, score, run, overrides}."""
    arms = [
        {
            "arm": job.arm,
            "seed": job.seed,
            "trial": bool(job.trial),
            "status": end.status,
            "score": end.score if isfinite(end.score) else None,
            "run": str(end.folder) if end.folder else None,
            "overrides": [*runner.overrides(job), f"seed={job.seed}"],
        }
        for job, end in runner.ended.items()
    ]
    (folder / "arms.json").write_text(json.dumps(arms, indent=1) + "\n")


def _environment() -> dict[str, str]:
    """The environment, with this tree on the module path of processes elsewhere."""
    from experiments.studies.runner import ROOT

    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path}


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
