"""Tune one algorithm as every other: as many trials, of as many steps, by the same sampler.

    python -m experiments.studies.tune study=mini algo=spo trials=8

A trial is a run on the validation split. Optuna's TPE sampler proposes its values; what it proposed
is in SQLite before the run begins, and a trial that was going on when this was killed is taken up
again, with its own values and from its run's last checkpoint: none is lost and none is done twice.
The sampler is seeded anew for each trial, by its number. With jobs=1 the trials are the same on
every machine with the same bits; with more, later values hang on which earlier trials had ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from analysis.load.compute import cores
from experiments.errors import UserError
from experiments.run_dir.interrupts import raise_interrupts
from experiments.studies.cli import FAILED, command, say, split
from experiments.studies.jobs import End, Job
from experiments.studies.search_space import Range, read, suggest
from experiments.studies.study import Arm, Study
from experiments.studies.study import read as read_study

if TYPE_CHECKING:
    import optuna

HELP = """\
Tune an arm of a study on the validation split: as many trials, as many steps, the same sampler for
each. Of the finished trials the one with the highest pass@1 wins.

  python -m experiments.studies.tune study=NAME algo=ARM trials=N [jobs=N] [KEY=VALUE ...]

  study   a file of experiments/studies/, or FILE.yaml, which says how long a trial is (`tuning`)
  algo    an arm of the study; what is looked through stands in conf/algo/_search/
  trials  how many in all, those of before included
  jobs    runs at a time (default: one for each core)
  KEY     overrides of every trial, as of run.py

The same command again goes on. It leaves a table of all trials in experiments/studies/tuned/, and
the winner as conf/experiment/tuned_STUDY_ARM.yaml.
"""


@dataclass
class Options:
    """The command's own keys."""

    trials: PositiveInt
    study: str = "mini"
    algo: str = ""
    jobs: PositiveInt = field(default_factory=cores)


class Tuner:
    """The trials of one arm: those in the store, and those that are still to come."""

    def __init__(self, study: Study, arm: str, trials: int, given: Sequence[str], store: Path):
        import optuna

        held: Arm = study.arms[arm]
        self.arm, self.trials, self.tuning = arm, trials, study.tuning
        name = f"name={study.name}-tuning"
        self.overrides = (*study.overrides, *held.overrides, name, *self.tuning.overrides, *given)
        self.space: dict[str, Range] = {}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        store.parent.mkdir(parents=True, exist_ok=True)
        self.store = optuna.create_study(
            storage=f"sqlite:///{store.absolute()}",
            study_name=arm,
            direction="maximize",
            load_if_exists=True,
        )
        self.numbers: dict[Job, int] = {}

    def begin(self, space: dict[str, Range], workers: int) -> list[Job]:
        """The trials to start with: those that were going on, then new ones for the other workers.

        Raises UserError where the store's trials were made under other settings.
        """
        self.space = space
        made_with = {
            "overrides": list(self.overrides),
            "space": {k: vars(v) for k, v in space.items()},
        }
        before = self.store.user_attrs.get("made_with", made_with)
        if before != made_with:
            raise UserError(
                f"the trials of {self.arm} so far were made with {before}, not {made_with}; "
                "take another output_dir"
            )
        self.store.set_user_attr("made_with", made_with)
        import optuna

        going_on = self.store.get_trials(states=(optuna.trial.TrialState.RUNNING,))
        jobs = [self._job(self._seeded(one.number, one._trial_id)) for one in going_on]
        while len(jobs) < workers and self.left():
            jobs.append(self.ask())
        return jobs

    def left(self) -> int:
        """Trials that have not been proposed yet."""
        return max(self.trials - len(self.store.get_trials(deepcopy=False)), 0)

    def ask(self) -> Job:
        """The next trial's run."""
        number = len(self.store.get_trials(deepcopy=False))
        self._seed(number)
        return self._job(self.store.ask())

    def tell(self, job: Job, end: End) -> None:
        """A trial's run ended; one that failed counts as a trial."""
        import optuna

        done = end.status == "finished"
        number = self.numbers[job]
        state = optuna.trial.TrialState.COMPLETE if done else optuna.trial.TrialState.FAIL
        self.store.tell(number, end.score if done else None, state=state)

    def table(self) -> list[dict[str, Any]]:
        """A row for each trial: number, state, pass@1, and the values in four digits."""
        return [
            {
                "trial": one.number,
                "state": one.state.name.lower(),
                "pass@1": one.value,
                **{
                    k: float(f"{v:.4g}") if isinstance(v, float) else v
                    for k, v in one.params.items()
                },
            }
            for one in self.store.get_trials(deepcopy=False)
        ]

    def _job(self, trial: optuna.trial.Trial) -> Job:
        values = suggest(trial, self.space)
        overrides = (*self.overrides, *values)
        job = Job(self.arm, self.tuning.seed, overrides, trial=f"t{trial.number:03}")
        self.numbers[job] = trial.number
        return job

    def _seed(self, number: int) -> None:
        """A killed process knows nothing of the stream that it had drawn from."""
        import optuna

        start = max(self.trials // 2, 1)
        self.store.sampler = optuna.samplers.TPESampler(
            seed=self.tuning.seed + number, n_startup_trials=start, constant_liar=True
        )

    def _seeded(self, number: int, trial_id: int) -> optuna.trial.Trial:
        """A trial of before; what it lacks, where it was killed while its values were drawn, is
        drawn as it would have been."""
        import optuna

        self._seed(number)
        return optuna.trial.Trial(self.store, trial_id)


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status."""
    return command(arguments, HELP, _tune)


def _tune(arguments: Sequence[str]) -> int:
    from importlib.util import find_spec

    from experiments.config.composition import config_of
    from experiments.run_dir.atomic_files import lock
    from experiments.studies.runner import Runner
    from experiments.studies.tuning_report import keep

    if find_spec("optuna") is None:
        raise UserError("Optuna is not installed; pip install -e '.[tune]' brings it")
    options, given = split(Options, arguments)
    study, trials = read_study(options.study), options.trials
    arm = _arm(study, options.algo)
    try:
        config = config_of((*study.overrides, *study.arms[arm].overrides, *given))
    except UserError as error:
        raise UserError(f"arm {arm}: {error}") from error
    folder = Path(config.output_dir) / f"{study.name}-tuning"
    (folder / "locks" / arm).mkdir(parents=True, exist_ok=True)
    held = lock(folder / "locks" / arm)
    tuner = Tuner(study, arm, trials, given, folder / "trials.sqlite")
    raise_interrupts()
    jobs = tuner.begin(read(config.algo.name), options.jobs)
    runner = Runner(jobs, options.jobs, say)

    def after(job: Job, end: End) -> None:
        tuner.tell(job, end)
        if tuner.left():
            runner.jobs.append(tuner.ask())

    runner.after = after
    ended = trials - tuner.left() - len(jobs)
    say(f"{arm}: {trials} trials, {ended} ended, {options.jobs} at a time")
    runner.run()
    os.close(held)
    rows = tuner.table()
    print(keep(options.study, arm, study, config, rows, tuner.space))
    return FAILED if all(row["state"] != "complete" for row in rows) else 0


def _arm(study: Study, arm: str) -> str:
    if study.tuning is None:
        raise UserError("the study has no `tuning`, which would say how long a trial is")
    able = [name for name, held in study.arms.items() if not held.parents]
    if arm not in able:
        raise UserError(f"algo={arm}: it is one of {', '.join(able)}")
    return arm


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
