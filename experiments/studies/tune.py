"""Tune one arm, with the same number of trials and steps and the same sampler as every other.

    python -m experiments.studies.tune study=mini algo=spo trials=8

A trial is a run on the tune split, with values from Optuna's TPE sampler. They are stored in
SQLite before the run starts. After a kill, a running trial resumes with its values, from its run's
last checkpoint: none is lost and none is repeated. The sampler is seeded by the trial's number.
With jobs=1 the trials are equal on every machine with equal bits; with more jobs, later values
depend on which earlier trials had ended.
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
from experiments.studies.cli import FAILED, run_command, say, split_arguments
from experiments.studies.jobs import End, Job
from experiments.studies.study import Arm, Study, read
from experiments.studies.tuning_files import Space, read_space, suggest

if TYPE_CHECKING:
    import optuna

HELP = """\
Tune an arm of a study on the tune split, with the same number of trials and steps and the
same sampler for each arm. The finished trial with the highest pass@1 wins.

  python -m experiments.studies.tune study=NAME algo=ARM trials=N [jobs=N] [KEY=VALUE ...]

  study   a file of experiments/studies/, or FILE.yaml; its `tuning` sets the length of a trial
  algo    an arm of the study; its search space is in conf/algo/_search/
  trials  total number of trials, including earlier ones
  jobs    parallel runs (default: one for each core)
  KEY     overrides of every trial, as of run.py

The same command again resumes. It writes a table of all trials to experiments/studies/tuned/, and
the winner to conf/experiment/tuned_STUDY_ARM.yaml.
"""


@dataclass
class Options:
    """The command's own keys."""

    trials: PositiveInt
    study: str = "mini"
    algo: str = ""
    jobs: PositiveInt = field(default_factory=cores)


class Tuner:
    """The trials of one arm, stored and still to come."""

    def __init__(
        self, study: Study, arm_name: str, trials: int, overrides: Sequence[str], store: Path
    ) -> None:
        import optuna

        assert study.tuning is not None
        arm: Arm = study.arms[arm_name]
        self.arm, self.trials, self.tuning = arm_name, trials, study.tuning
        name = f"name={study.name}-tuning"
        trial = (name, *study.tuning.overrides, *overrides)
        self.overrides = (*study.overrides, *arm.overrides, *trial)
        self.space: Space = {}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        store.parent.mkdir(parents=True, exist_ok=True)
        self.store = optuna.create_study(
            storage=f"sqlite:///{store.absolute()}",
            study_name=arm_name,
            direction="maximize",
            load_if_exists=True,
        )
        self.numbers: dict[Job, int] = {}

    def begin(self, space: Space, workers: int) -> list[Job]:
        """The trials to start with: interrupted ones, then new ones for the other workers.

        Raises UserError if the stored trials were made with other settings.
        """
        self.space = space
        made_with = {
            "overrides": list(self.overrides),
            "space": {k: vars(v) for k, v in space.items()},
        }
        before = self.store.user_attrs.get("made_with", made_with)
        if before != made_with:
            raise UserError(
                f"earlier trials of {self.arm} used {before}, not {made_with}; "
                "choose another output_dir"
            )
        self.store.set_user_attr("made_with", made_with)
        import optuna

        interrupted = self.store.get_trials(states=(optuna.trial.TrialState.RUNNING,))
        jobs = [self._job(self._resumed(each.number, each._trial_id)) for each in interrupted]
        while len(jobs) < workers and self.left():
            jobs.append(self.ask())
        return jobs

    def left(self) -> int:
        """Number of trials that are not proposed yet."""
        return max(self.trials - len(self.store.get_trials(deepcopy=False)), 0)

    def ask(self) -> Job:
        """Propose the next trial; returns its run."""
        number = len(self.store.get_trials(deepcopy=False))
        self._seed(number)
        return self._job(self.store.ask())

    def tell(self, job: Job, end: End) -> None:
        """Store the end of a trial's run. A failed one counts as a trial."""
        import optuna

        done = end.status == "finished"
        number = self.numbers[job]
        state = optuna.trial.TrialState.COMPLETE if done else optuna.trial.TrialState.FAIL
        self.store.tell(number, end.score if done else None, state=state)

    def table(self) -> list[dict[str, Any]]:
        """A row for each trial: number, state, pass@1, and the values in four digits."""
        return [
            {
                "trial": each.number,
                "state": each.state.name.lower(),
                "pass@1": each.value,
                **{
                    k: float(f"{v:.4g}") if isinstance(v, float) else v
                    for k, v in each.params.items()
                },
            }
            for each in self.store.get_trials(deepcopy=False)
        ]

    def _job(self, trial: optuna.trial.Trial) -> Job:
        values = suggest(trial, self.space)
        overrides = (*self.overrides, *values)
        job = Job(self.arm, self.tuning.seed, overrides, trial=f"t{trial.number:03}")
        self.numbers[job] = trial.number
        return job

    def _seed(self, number: int) -> None:
        """Seed the sampler for one trial: a random stream does not survive a kill."""
        import optuna

        start = max(self.trials // 2, 1)
        self.store.sampler = optuna.samplers.TPESampler(
            seed=self.tuning.seed + number, n_startup_trials=start, constant_liar=True
        )

    def _resumed(self, number: int, trial_id: int) -> optuna.trial.Trial:
        """An interrupted trial. Values missing after a kill are drawn as they would have been."""
        import optuna

        self._seed(number)
        return optuna.trial.Trial(self.store, trial_id)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    return run_command(arguments, HELP, _tune)


def _tune(arguments: Sequence[str]) -> int:
    from importlib.util import find_spec

    from experiments.config.composition import config_of
    from experiments.run_dir.atomic_files import lock
    from experiments.studies.runner import Runner
    from experiments.studies.tuning_files import write_results

    if find_spec("optuna") is None:
        raise UserError("Optuna is not installed; run pip install -e '.[tune]'")
    options, overrides = split_arguments(Options, arguments)
    study, trials = read(options.study), options.trials
    arm = _check_arm(study, options.algo)
    try:
        config = config_of((*study.overrides, *study.arms[arm].overrides, *overrides))
    except UserError as error:
        raise UserError(f"arm {arm}: {error}") from error
    folder = Path(config.output_dir) / f"{study.name}-tuning"
    (folder / "locks" / arm).mkdir(parents=True, exist_ok=True)
    arm_lock = lock(folder / "locks" / arm)
    tuner = Tuner(study, arm, trials, overrides, folder / "trials.sqlite")
    raise_interrupts()
    jobs = tuner.begin(read_space(config.algo.name), options.jobs)
    runner = Runner(jobs, options.jobs, say)

    def after(job: Job, end: End) -> None:
        tuner.tell(job, end)
        if tuner.left():
            runner.jobs.append(tuner.ask())

    runner.after = after
    ended = trials - tuner.left() - len(jobs)
    say(f"{arm}: {trials} trials, {ended} ended, {options.jobs} at a time")
    runner.run()
    os.close(arm_lock)
    rows = tuner.table()
    print(write_results(options.study, arm, study, config, rows, tuner.space))
    return FAILED if all(row["state"] != "complete" for row in rows) else 0


def _check_arm(study: Study, arm: str) -> str:
    if study.tuning is None:
        raise UserError("the study has no `tuning`, which sets the length of a trial")
    independent = [name for name, each in study.arms.items() if not each.parents]
    if arm not in independent:
        raise UserError(f"algo={arm}: choose one of {', '.join(independent)}")
    return arm


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
