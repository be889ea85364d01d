"""Run a study: all its runs in parallel, resumable, then its report.

python -m experiments.studies.run study=mini
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from pydantic import PositiveInt

from analysis.load.compute import cores
from experiments.errors import UserError
from experiments.run_dir.interrupts import raise_interrupts
from experiments.studies.cli import FAILED, command, say, split

HELP = """\
Run a study: every arm on every seed, so many runs at a time, then the report.

  python -m experiments.studies.run study=NAME [jobs=N] [seeds=0,1] [arms=A,B] [plan=true]
                                    [KEY=VALUE ...]

  study   a file of experiments/studies/ (mini, q0, offpolicy, atlas), or FILE.yaml
  jobs    runs at a time (default: one for each core)
  seeds   of the study's, only these
  arms    of the study's, only these, and those that they begin with
  plan    say what there is to do and how long it will take, and end
  KEY     overrides of every run, as of run.py

The same command again leaves finished runs as they are, goes on with those that were stopped, and
begins the others. Ctrl-C ends it with a checkpoint of each run. In output_dir/NAME-OF-THE-STUDY/
stand the run folders, logs/ (what each run said), arms.json (which run belongs to which arm), and
report/.
"""
TIMED_ARMS = 8  # at most, before a study of which nothing has finished


@dataclass
class Options:
    """The command's own keys."""

    study: str = "mini"
    jobs: PositiveInt = field(default_factory=cores)
    seeds: str | None = None
    arms: str | None = None
    plan: bool = False


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status."""
    return command(arguments, HELP, _run)


def _run(arguments: Sequence[str]) -> int:
    from experiments.studies.jobs import jobs_of
    from experiments.studies.runner import Runner
    from experiments.studies.study import read

    options, given = split(Options, arguments)
    study = read(options.study)
    seeds = _some("seeds", options.seeds, study.seeds)
    arms = _some("arms", options.arms, list(study.arms))
    print(f"{study.name}: {study.question}")
    for what, why in study.left_out.items():
        print(f"left out: {what}: {why}")
    runner = Runner(jobs_of(study, seeds, arms, given), options.jobs, say)
    folder = runner.log(runner.jobs[-1]).parents[1]
    folder.mkdir(parents=True, exist_ok=True)
    held = _lock(folder)
    runner.look()
    raise_interrupts()
    _announce(runner)
    if options.plan:
        return 0
    runner.run()
    os.close(held)
    return _end(runner, folder)


def _announce(runner) -> None:
    """How much there is to do, and for how long."""
    from experiments.studies.estimate import in_words, timed

    left = runner.left()
    going_on = sum(found.folder is not None for found in runner.found.values())
    say(
        f"{len(runner.jobs)} runs: {len(runner.jobs) - len(left)} finished, {going_on} to go on "
        f"with, {len(left) - going_on} to begin; {runner.workers} at a time"
    )
    if not left:
        return
    known = "by the runs that have finished"
    if not runner.clock.steps:
        some = _some_of_each_arm(left)
        known = f"by a few timed steps of {', '.join(job.arm for job in some)}"
        say(f"timing a few steps of {', '.join(job.arm for job in some)} …")
        timed(
            {j: (runner.overrides(j), runner.config(j)) for j in some}, runner.workers, runner.clock
        )
    seconds = runner.seconds_left()
    end = time.strftime("%H:%M", time.localtime(time.time() + seconds))
    say(f"about {in_words(seconds)}, till {end}, {known}")


def _some_of_each_arm(jobs: list) -> list:
    """One job of an arm that waits for no other, of at most TIMED_ARMS arms, spread evenly."""
    first: dict[str, object] = {}
    for job in jobs:
        if not job.needs:
            first.setdefault(job.arm, job)
    found = list(first.values()) or jobs[:1]
    if len(found) <= TIMED_ARMS:
        return found
    return [found[i * len(found) // TIMED_ARMS] for i in range(TIMED_ARMS)]


def _end(runner, folder: Path) -> int:
    """The last table, which run belongs to which arm, and the report."""
    _keep_arms(runner, folder)
    failed = [job for job, end in runner.ended.items() if end.status != "finished"]
    for job in failed:
        print(f"{runner.ended[job].status}: {job.label}: {runner.ended[job].error}")
    report = [
        sys.executable,
        "-m",
        "analysis.report.command",
        f"runs={folder}",
        f"out={folder / 'report'}",
    ]
    print(f"report: python {' '.join(report[1:])}", flush=True)
    status = subprocess.run(report, cwd=Path.cwd(), env=_with_this_tree()).returncode
    wandb = runner.config(runner.jobs[-1]).logger.wandb
    if wandb and not status:
        told = [f"report={folder / 'report'}", f"name={folder.name}", f"project={wandb.project}"]
        told += [f"entity={wandb.entity}"] if wandb.entity else []
        subprocess.run(
            [sys.executable, "-m", "experiments.run_dir.publish", *told], env=_with_this_tree()
        )
    return FAILED if failed or status else 0


def _keep_arms(runner, folder: Path) -> None:
    """arms.json: a list of {arm, seed, trial, status, score, run, overrides}."""
    kept = [
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
    (folder / "arms.json").write_text(json.dumps(kept, indent=1) + "\n")


def _with_this_tree() -> dict[str, str]:
    from experiments.studies.processes import ROOT

    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }


def _lock(folder: Path) -> int:
    from experiments.run_dir.atomic_files import lock

    try:
        return lock(folder)
    except UserError:
        raise UserError(f"{folder}: this study is still going on; wait, or end it first") from None


def _some(key: str, given: str | None, known: list) -> list:
    """The study's values that are asked for, in the study's order; all where none are."""
    if given is None:
        return known
    asked = given.split(",")
    if unknown := [value for value in asked if value not in map(str, known)]:
        raise UserError(f"{key}={unknown[0]}: the study has {', '.join(map(str, known))}")
    return [value for value in known if str(value) in asked]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
