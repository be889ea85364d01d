"""Tune all arms of a study by one protocol: docs/reference/protocol.md.

    python -m experiments.studies.tune study=mini

A trial is a run on the tune split, with values from Optuna's TPE sampler. They are stored in
SQLite before the run starts. After a kill, a running trial resumes with its values, from its run's
last checkpoint: none is lost and none is repeated. The sampler is seeded by the trial's number.
With jobs=1 the trials are equal on every machine with equal bits; with more jobs, later values
depend on which earlier trials had ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from envs.command_line import quiet_when_unread
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
from experiments.studies.study import Study, read
from experiments.studies.tuning.candidates import ATTEMPTS
from experiments.studies.tuning.search_space import check_same_size, edges, read_space
from experiments.studies.tuning.tuner import Ranges, Tuner
from experiments.studies.tuning.tuning_progress import Progress

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.studies.jobs import End, Job

HELP = f"""\
Tune the arms of a study, each with the same number of trials, steps and tuned keys, and the same
sampler. The rules: docs/reference/protocol.md.

  python -m experiments.studies.tune study=NAME [trials=24] [algo=ARM,ARM] [jobs=N] [plan=true]
                                     [KEY=VALUE ...]

KEY=VALUE overrides a key of every trial, as of run.py. Search spaces are in conf/algo/_search/.

The best trials of an arm run again. With tuning.longer: as many on the trials' seed, with
tuning.rescore_overrides. Then the best tuning.rescored of these, or of all trials, on
tuning.rescore_seeds, with the same overrides; the highest mean decides. A further run that fails is
repeated; if it fails {ATTEMPTS} times, the next best trial takes the place of its trial. If a
winner stands at the edge of a range, the range widens for every arm that tunes this key and all
arms get further trials, once.

The same command again resumes. It writes tables of all runs to docs/results/tuned-STUDY/, and the
winners to conf/experiment/tuned_STUDY_ARM.yaml.
"""
MIN_SAMPLES = 10  # of each problem: pass@10 is part of a trial's score


@dataclass
class Options:
    """The command's own keys."""

    # a file of conf/study/, or FILE.yaml; its `tuning` sets the length of a trial
    study: str = "mini"
    trials: PositiveInt = 24  # trials of each arm, before any range widens
    # only these arms, and no range widens; by default all that start from the base model and have
    # values of their own
    algo: str | None = None
    # parallel runs; by default, and with auto, one for each GPU, or without one for each core
    jobs: JobsAtOnce = field(default_factory=jobs_at_once)
    plan: bool = False  # print the runs to do and their estimated time, then exit


# Runs jobs, and those that `Tuner.ask` adds, until the tuner has been told the end of each.
RunAll = Callable[[Tuner, list["Job"]], None]


def tune_all(
    tuners: Sequence[Tuner],
    ranges: Ranges,
    workers: int,
    run: RunAll,
    say: Callable[[str], None],
    whole: bool = True,
) -> None:
    """Trials and re-scores of each arm in turn; again with wider ranges while a winner needs it.

    Ranges widen only if these are all arms of the study (`whole`).
    """
    while True:
        for tuner in tuners:
            tuner.open(ranges)
        for tuner in tuners:
            trials = tuner.begin(ranges, workers)
            say(f"{tuner.arm}: {tuner.target} trials, {tuner.left() + len(trials)} to do")
            run(tuner, trials)
            _rescore(tuner, run, say)
        if not whole:
            say("no range widens: only some of the arms were tuned; call it without algo=... too")
            return
        at_edge = {t.arm: edges(best[0].values, t.space) for t in tuners if (best := t.ranking())}
        if not any(at_edge.values()):
            return
        if ranges.rounds:
            say("ranges have widened once and widen no more")
            return
        for each in ranges.widen(at_edge):
            say(
                f"{each['key']} widens at its {each['side']} edge for every arm that tunes it: "
                f"the winner of {', '.join(each['arms'])} stands there"
            )


def _rescore(tuner: Tuner, run: RunAll, say: Callable[[str], None]) -> None:
    """Run the best trials longer and on fresh seeds; failed ones again, then the next best."""
    while jobs := tuner.runs_again():
        trials = ", ".join(str(number) for number in sorted({tuner.numbers[j] for j in jobs}))
        how = "over more steps" if jobs[0].seed == tuner.tuning.seed else "on fresh seeds"
        say(f"{tuner.arm}: trials {trials} {how}, {len(jobs)} runs to do")
        run(tuner, jobs)
    for number in tuner.left_out():
        say(f"{tuner.arm}: trial {number} is left out: a further run failed {ATTEMPTS} times")


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    return run_command(arguments, HELP, Options, _tune)


def _tune(arguments: Sequence[str]) -> int:
    from importlib.util import find_spec

    from experiments.config.preflight import make_output_folder
    from experiments.run_dir.atomic_files import lock
    from experiments.studies.tuning.tuning_files import summary, write_results, write_summary

    if find_spec("optuna") is None:
        raise UserError("Optuna is not installed; run pip install -e '.[tune]'")
    options, overrides = split_arguments(Options, arguments)
    study = read(options.study)
    if study.tuning is None:
        raise UserError("the study has no `tuning`, which sets the length of a trial")
    arms = choose("algo", options.algo, study.tuned_arms)
    if not arms:
        raise UserError("every arm starts from another one or takes its values: nothing to tune")
    configs = {arm: trial_config(study, arm, overrides) for arm in study.tuned_arms}
    spaces = {arm: read_space(c.algo.name, study.arms[arm].search) for arm, c in configs.items()}
    check_same_size(spaces)
    folder = Path(configs[arms[0]].output_dir) / f"{study.name}-tuning"
    make_output_folder(str(folder.parent))
    check_runs([configs[arm] for arm in arms])
    folder.mkdir(exist_ok=True)
    tuning_lock = lock(folder)
    storage = f"sqlite:///{folder.absolute() / 'trials.sqlite'}"
    tuners = [Tuner(study, arm, spaces[arm], options.trials, overrides, storage) for arm in arms]
    ranges = Ranges(storage)
    raise_interrupts()
    if options.plan:
        _announce(tuners, ranges, options.jobs)
        return 0
    whole, workers, progress = arms == study.tuned_arms, options.jobs, Progress(tuners)
    tune_all(tuners, ranges, workers, lambda t, jobs: _run(t, jobs, workers, progress), say, whole)
    os.close(tuning_lock)
    for tuner in tuners:
        print(write_results(options.study, study, tuner, configs[tuner.arm]))
    print(write_summary(options.study, tuners, ranges) if whole else summary(tuners, ranges))
    return 0 if all(tuner.ranking() for tuner in tuners) else FAILED


def trial_config(study: Study, arm: str, overrides: Sequence[str]) -> RunConfig:
    """The configuration of an arm's trials, without tuned values.

    Raises UserError if it is invalid, reads another split than tune, or cannot be scored.
    """
    from experiments.config.composition import config_of
    from experiments.config.model_folder import with_last_model_folder

    assert study.tuning is not None
    trial = (*study.untuned_overrides(arm), *study.tuning.overrides)
    try:
        given = with_last_model_folder((*study.overrides, *trial, *overrides))
        config = config_of(given)
        again = config_of((*given, *study.tuning.rescore_overrides))
    except UserError as error:
        raise UserError(f"arm {arm}: {error}") from error
    _check_scored(config)
    _check_scored(again)
    return config


def _check_scored(config: RunConfig) -> None:
    """Raise UserError if a run of this configuration has no score by which to tune."""
    from experiments.studies.estimate import evaluations

    made = config.eval
    if made.split != "tune":
        raise UserError(
            f"tuning: eval.split={made.split}: trials are evaluated on the tune split alone"
        )
    if made.samples < MIN_SAMPLES:
        raise UserError(
            f"tuning: eval.samples={made.samples}: a trial's score holds pass@10, so draw "
            f"{MIN_SAMPLES} or more"
        )
    if evaluations(config) < 3:
        raise UserError(
            f"tuning: eval.every={made.every} in steps={config.steps}: a trial's score is the area "
            "under its curve, so it must also be evaluated between its start and its end"
        )


def _run(tuner: Tuner, jobs: Sequence[Job], workers: int, progress: Progress) -> None:
    """Run the jobs as processes, and the trials that follow them."""
    from analysis.budgets import curve_score
    from analysis.runs import load_run
    from experiments.studies.runner import Runner

    runner = Runner(jobs, workers, say)
    scores: dict[Job, float | None] = {}

    def after(job: Job, end: End) -> None:
        finished = end.status == "finished" and end.folder is not None
        score = curve_score(load_run(end.folder)) if finished and end.folder else float("nan")
        scores[job] = None if score != score else score
        tuner.tell(job, scores[job], str(end.folder or ""))
        if tuner.left():
            runner.jobs.append(tuner.ask())

    runner.after = after
    runner.progress = lambda job: progress.line(tuner, job, scores[job], len(runner.running))
    runner.run()


def _announce(tuners: Sequence[Tuner], ranges: Ranges, workers: int) -> None:
    """Print the runs to do and their estimated time, from a few timed steps of each arm."""
    from experiments.studies.estimate import TIMED_S, Clock, format_duration
    from experiments.studies.jobs import End, config_with_seed
    from experiments.studies.runner import time_few_steps

    for tuner in tuners:
        tuner.open(ranges)
    left = {tuner.arm: tuner.runs_left() for tuner in tuners}
    runs = ", ".join(f"{arm} {number}" for arm, number in left.items())
    say(f"{sum(left.values())} runs, re-scores included: {runs}; {workers} at a time")
    if not sum(left.values()):
        return
    jobs = _kinds_of_runs(tuners, left)
    configs = {job: config_with_seed(job.overrides, job.seed) for job in jobs}
    one_each: dict[str, Job] = {}
    for job in jobs:
        one_each.setdefault(job.arm, job)
    clock = Clock()
    to_time = {job: (job.overrides, configs[job]) for job in one_each.values()}
    timed = time_few_steps(to_time, workers, clock, say)
    if not timed:
        say(f"not timed: a few steps of {', '.join(one_each)} take more than {TIMED_S} s")
        return
    if len(timed) < len(one_each):
        say(f"timed {', '.join(job.arm for job in timed)}; other arms count as their mean")
    base = clock.evaluations[0]  # cached after the first run of a seed
    seconds = {j: clock.seconds(j, configs[j], End("not begun")) - base for j in jobs}
    for job, each in seconds.items():
        say(f"{job.arm}: {jobs[job]} runs of about {each:.0f} s, {configs[job].steps} steps")
    whole = sum(seconds[job] * number for job, number in jobs.items()) / workers
    end = time.strftime("%H:%M", time.localtime(time.time() + whole))
    say(f"about {format_duration(whole)}, until {end}; a widening adds a third of the trials")


def _kinds_of_runs(tuners: Sequence[Tuner], left: Mapping[str, int]) -> dict[Job, int]:
    """Return a trial and a re-score of each arm, as far as any are left, and how many are.

    `left`: runs of both kinds by arm.
    """
    from experiments.studies.jobs import Job

    jobs: dict[Job, int] = {}
    for tuner in tuners:
        trials = tuner.trials_left()
        for more, number in (
            ((), trials),
            (tuner.tuning.rescore_overrides, left[tuner.arm] - trials),
        ):
            job = Job(tuner.arm, tuner.tuning.seed, (*tuner.overrides, *more))
            if number:
                jobs[job] = jobs.get(job, 0) + number
    return jobs


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
