"""One arm's trials and re-scores, and the ranges that all arms of a study share; all in SQLite.

Everything that decides is in that file before the next run starts: proposed values, scores,
re-scores, widenings. So a command that was killed resumes from it, wherever it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.config.model_folder import with_last_model_folder
from experiments.errors import UserError
from experiments.studies.jobs import Job
from experiments.studies.study import Study
from experiments.studies.tuning.candidates import (
    ATTEMPTS,
    Candidate,
    best_of_rounds,
    first_of_rounds,
)
from experiments.studies.tuning.search_space import Side, Space, suggest, values_of, widen

if TYPE_CHECKING:
    import optuna
    from optuna.storages import BaseStorage

    Storage = str | BaseStorage

SCORE = "area under (pass@1 + pass@10)/2"
MORE = 3  # a widening adds 1/MORE of the trials, to every arm


class Ranges:
    """How often each range was widened, for all arms of the study."""

    def __init__(self, storage: Storage) -> None:
        self.store = _open(storage, "widened ranges")

    @property
    def widenings(self) -> list[dict[str, Any]]:
        """Each widening's round, key, side, and the arms whose winners stood at that edge."""
        return self.store.user_attrs.get("widenings", [])

    @property
    def rounds(self) -> int:
        """Number of times that ranges were widened."""
        return max((each["round"] for each in self.widenings), default=0)

    def space(self, space: Space) -> Space:
        """An arm's search space as wide as it is now."""
        widened: dict[str, dict[Side, int]] = {}
        for each in self.widenings:
            sides = widened.setdefault(each["key"], {})
            sides[each["side"]] = sides.get(each["side"], 0) + 1
        return widen(space, widened)

    def widen(self, at_edge: Mapping[str, Mapping[str, Side]]) -> list[dict[str, Any]]:
        """Widen every range at whose edge a winner stands ({arm: {key: side}}), in one round."""
        arms: dict[tuple[str, Side], list[str]] = {}
        for arm, sides in at_edge.items():
            for key, side in sides.items():
                arms.setdefault((key, side), []).append(arm)
        before, number = self.widenings, self.rounds + 1
        new = [
            {"round": number, "key": key, "side": side, "arms": names}
            for (key, side), names in arms.items()
        ]
        self.store.set_user_attr("widenings", before + new)
        return new


class Tuner:
    """The trials and re-scores of one arm, stored and still to come."""

    def __init__(
        self,
        study: Study,
        arm: str,
        space: Space,
        trials: int,
        overrides: Sequence[str],
        storage: Storage,
    ) -> None:
        """`space` is the arm's own, before any widening.

        Raises UserError if stored trials were made with other settings.
        """
        assert study.tuning is not None
        self.arm, self.trials, self.tuning = arm, trials, study.tuning
        trial = (f"name={study.name}-tuning", *study.tuning.overrides, *overrides)
        given = (*study.overrides, *study.untuned_overrides(arm), *trial)
        self.overrides = with_last_model_folder(given)
        self.first_space, self.space = space, space
        self.rounds = 0
        self.store = _open(storage, arm)
        self.numbers: dict[Job, int] = {}  # job → its trial
        self.again: set[Job] = set()  # the jobs of longer runs and re-scores
        made_with = self._made_with()
        before = self.store.user_attrs.get("made_with", made_with)
        if before != made_with:
            raise UserError(
                f"earlier trials of {self.arm} used {before}, not {made_with}; "
                "choose another output_dir"
            )

    def _made_with(self) -> dict[str, Any]:
        """What must be the same for all trials."""
        return {
            "overrides": list(self.overrides),
            "space": {k: vars(v) for k, v in self.first_space.items()},
            "score": SCORE,
            "sampler": "first half random, a stream for each key",
            "seed": self.tuning.seed,
        }

    # Trials.

    def begin(self, ranges: Ranges, workers: int) -> list[Job]:
        """The trials to start with: interrupted ones, then new ones for the other workers."""
        import optuna

        self.open(ranges)
        self.store.set_user_attr("made_with", self._made_with())
        interrupted = self.store.get_trials(states=(optuna.trial.TrialState.RUNNING,))
        jobs = [self._job(self._resumed(each.number, each._trial_id)) for each in interrupted]
        while len(jobs) < workers and self.left():
            jobs.append(self.ask())
        return jobs

    def open(self, ranges: Ranges) -> None:
        """Take over the ranges as they are now, and the number of trials that goes with them."""
        self.space = ranges.space(self.first_space)
        self.rounds = ranges.rounds

    @property
    def target(self) -> int:
        """Number of trials that the present round asks for, earlier ones included."""
        return self._targets()[-1]

    def _targets(self) -> list[int]:
        """The same of each round so far."""
        more = max(self.trials // MORE, 1)
        return [self.trials + number * more for number in range(self.rounds + 1)]

    def left(self) -> int:
        """Number of trials that are not proposed yet."""
        return max(self.target - len(self.store.get_trials(deepcopy=False)), 0)

    def trials_ended(self) -> int:
        """Number of trials that have ended, failed ones included."""
        return sum(each.state.is_finished() for each in self.store.get_trials(deepcopy=False))

    def trials_left(self) -> int:
        """Number of trials that have not ended."""
        import optuna

        states = [each.state for each in self.store.get_trials(deepcopy=False)]
        return self.left() + states.count(optuna.trial.TrialState.RUNNING)

    def runs_left(self) -> int:
        """Number of runs that have not ended, re-scores included, if no range widens."""
        trials, again = self.trials_left(), self.tuning
        longer = again.longer if trials else len(self.longer_left())
        if trials or longer:
            return trials + longer + again.rescored * len(again.rescore_seeds)
        return len(self.rescores_left())

    def ask(self) -> Job:
        """Propose the next trial; returns its run."""
        number = len(self.store.get_trials(deepcopy=False))
        self._seed(number)
        return self._job(self.store.ask())

    def tell(self, job: Job, score: float | None, run: str = "") -> None:
        """Store the end of a run: of a trial, a longer run or a re-score; None: it failed.

        A failed trial counts as a trial. The others run again, ATTEMPTS times in all.
        """
        import optuna

        number = self.numbers[job]
        if job in self.again:
            name = self._again(number, job.seed)
            attempts = _attempts(self.store.user_attrs.get(name, {})) + 1
            self.store.set_user_attr(name, {"score": score, "run": run, "attempts": attempts})
            return
        state = optuna.trial.TrialState.FAIL if score is None else optuna.trial.TrialState.COMPLETE
        self.store.tell(number, score, state=state)

    # Longer runs and re-scores.

    def longer_left(self) -> list[Job]:
        """The longer runs of the best trials that are still to do, on the trials' seed."""
        rounds = first_of_rounds(self.finished(), self._targets(), self.tuning.longer)
        pool = {each.trial: each for best in rounds for each in best if each.longer is None}
        return [self._run_again(each, self.tuning.seed, "-longer") for each in pool.values()]

    def runs_again(self) -> list[Job]:
        """The runs of the best trials to do next: all longer ones first, then the re-scores."""
        return self.longer_left() or self.rescores_left()

    def best(self) -> list[Candidate]:
        """The trials that run again on fresh seeds, the highest score of their own first.

        They are the best of each round so far, so that later trials push no re-scored one out.
        Rounds are those of a call for this many trials. Trials and re-scores that only another
        call asked for are left out: every arm has equally many.
        """
        again = self.tuning
        return best_of_rounds(self.finished(), self._targets(), again.rescored, again.longer)

    def left_out(self) -> list[int]:
        """The trials with a longer run or a re-score that failed in every attempt."""
        return [each.trial for each in self.finished() if each.is_left_out]

    def rescores_left(self) -> list[Job]:
        """The runs of the best trials on fresh seeds that are still to do."""
        return [
            self._run_again(candidate, seed)
            for candidate in self.best()
            for seed, score in candidate.rescores.items()
            if score is None
        ]

    def ranking(self) -> list[Candidate]:
        """The candidates with all re-scores, the highest mean first."""
        complete = [candidate for candidate in self.best() if candidate.is_complete]
        return sorted(complete, key=lambda candidate: -candidate.mean)

    def finished(self) -> list[Candidate]:
        """The trials with a score."""
        known, seeds = self.store.user_attrs, self.tuning.rescore_seeds
        candidates = []
        for each in self.store.get_trials(deepcopy=False):
            if each.state.name != "COMPLETE" or each.value is None:
                continue
            ends = {seed: known.get(self._again(each.number, seed), {}) for seed in seeds}
            longer = known.get(self._again(each.number, self.tuning.seed), {})
            rescores = {seed: end.get("score") for seed, end in ends.items()}
            is_left_out = any(
                end.get("score") is None and _attempts(end) >= ATTEMPTS
                for end in (longer, *ends.values())
            )
            values = values_of(each.params, self.space)
            candidates.append(
                Candidate(
                    each.number, each.value, values, rescores, is_left_out, longer.get("score")
                )
            )
        return candidates

    def rescore_runs(self, candidate: Candidate) -> list[str]:
        """The run folders of a candidate's re-scores."""
        known = self.store.user_attrs
        return [known[self._again(candidate.trial, seed)]["run"] for seed in candidate.rescores]

    # The table.

    def table(self) -> list[dict[str, Any]]:
        """A row for each trial, longer run and re-score: its seed, state, score and values."""
        rows, known = [], self.store.user_attrs
        trials = self.store.get_trials(deepcopy=False)
        for each in trials:
            head = {"run": "trial", "trial": each.number, "seed": self.tuning.seed}
            end = {"state": each.state.name.lower(), "score": each.value}
            rows.append(head | end | values_of(each.params, self.space))
        for each in trials:
            for seed in (self.tuning.seed, *self.tuning.rescore_seeds):
                if (found := known.get(self._again(each.number, seed))) is not None:
                    score = found["score"]
                    kind = "longer" if seed == self.tuning.seed else "rescore"
                    head = {"run": kind, "trial": each.number, "seed": seed}
                    end = {"state": "fail" if score is None else "complete", "score": score}
                    rows.append(head | end | values_of(each.params, self.space))
        return rows

    def _run_again(self, candidate: Candidate, seed: int, suffix: str = "") -> Job:
        values = (f"{key}={_text(value)}" for key, value in candidate.values.items())
        overrides = (*self.overrides, *self.tuning.rescore_overrides, *values)
        job = Job(self.arm, seed, overrides, trial=f"t{candidate.trial:03}{suffix}")
        self.numbers[job] = candidate.trial
        self.again.add(job)
        return job

    def _again(self, trial: int, seed: int) -> str:
        """The stored name of a further run; one of another length is another one."""
        return " ".join([f"rescore of trial {trial}, seed {seed}", *self.tuning.rescore_overrides])

    def _job(self, trial: optuna.trial.Trial) -> Job:
        values = suggest(trial, self.space)
        overrides = (*self.overrides, *values)
        job = Job(self.arm, self.tuning.seed, overrides, trial=f"t{trial.number:03}")
        self.numbers[job] = trial.number
        return job

    def _seed(self, number: int) -> None:
        """Seed the sampler for one trial: a random stream does not survive a kill."""
        from experiments.studies.tuning.trial_sampler import TrialSampler

        start = max(self.trials // 2, 1)
        self.store.sampler = TrialSampler(self.tuning.seed, number, start)

    def _resumed(self, number: int, trial_id: int) -> optuna.trial.Trial:
        """An interrupted trial. Values missing after a kill are drawn as they would have been."""
        import optuna

        self._seed(number)
        return optuna.trial.Trial(self.store, trial_id)


def _open(storage: Storage, name: str) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="maximize",
        load_if_exists=True,
    )


def _attempts(end: Mapping[str, Any]) -> int:
    """How often a re-score has run to an end, from its stored end ({}: never)."""
    return end.get("attempts", 1) if end else 0


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
