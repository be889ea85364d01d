"""One arm's trials and re-scores, and the ranges that all arms of a study share; all in SQLite.

Everything that decides is in that file before the next run starts: proposed values, scores,
re-scores, widenings. So a command that was killed resumes from it, wherever it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError
from experiments.studies.jobs import Job
from experiments.studies.search_space import Side, Space, suggest, values_of, widen
from experiments.studies.study import Study

if TYPE_CHECKING:
    import optuna
    from optuna.storages import BaseStorage

    Storage = str | BaseStorage

SCORE = "area under (pass@1 + pass@10)/2"
BEST = 3  # trials that are run again on fresh seeds
MAX_WIDENINGS = 3
MORE = 3  # a widening adds 1/MORE of the trials, to every arm


@dataclass(frozen=True)
class Candidate:
    """One of the best trials, with its scores on fresh seeds (None: failed or not run yet)."""

    trial: int
    score: float  # of the trial: it made it a candidate, and decides nothing more
    values: Mapping[str, Any]
    rescores: Mapping[int, float | None]  # by seed

    @property
    def is_complete(self) -> bool:
        """Whether every fresh seed has a score."""
        return all(score is not None for score in self.rescores.values())

    @property
    def mean(self) -> float:
        """Mean over the fresh seeds."""
        scores = self._scores()
        return sum(scores) / len(scores)

    @property
    def standard_error(self) -> float:
        """Standard error of that mean."""
        scores, mean = self._scores(), self.mean
        squares = sum((score - mean) ** 2 for score in scores)
        return math.sqrt(squares / (len(scores) - 1) / len(scores))

    def ties_with(self, other: Candidate) -> bool:
        """Whether the means differ by one standard error of their difference, or by less."""
        error = math.hypot(self.standard_error, other.standard_error)
        return abs(self.mean - other.mean) <= error

    def _scores(self) -> list[float]:
        return [score for score in self.rescores.values() if score is not None]


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
        self.overrides = (*study.overrides, *study.untuned_overrides(arm), *trial)
        self.first_space, self.space = space, space
        self.target = trials
        self.store = _open(storage, arm)
        self.numbers: dict[Job, int] = {}
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
        self.target = self.trials + ranges.rounds * max(self.trials // MORE, 1)

    def left(self) -> int:
        """Number of trials that are not proposed yet."""
        return max(self.target - len(self.store.get_trials(deepcopy=False)), 0)

    def runs_left(self) -> int:
        """Number of runs that have not ended, re-scores included, if no range widens."""
        import optuna

        states = [each.state for each in self.store.get_trials(deepcopy=False)]
        trials = self.left() + states.count(optuna.trial.TrialState.RUNNING)
        if trials:
            return trials + BEST * len(self.tuning.rescore_seeds)
        return len(self.rescores_left())

    def ask(self) -> Job:
        """Propose the next trial; returns its run."""
        number = len(self.store.get_trials(deepcopy=False))
        self._seed(number)
        return self._job(self.store.ask())

    def tell(self, job: Job, score: float | None, run: str = "") -> None:
        """Store the end of a run, a trial's or a re-score's; None: it failed.

        A failed trial counts as a trial.
        """
        import optuna

        number = self.numbers[job]
        if job.seed != self.tuning.seed:
            self.store.set_user_attr(_rescore(number, job.seed), {"score": score, "run": run})
            return
        state = optuna.trial.TrialState.FAIL if score is None else optuna.trial.TrialState.COMPLETE
        self.store.tell(number, score, state=state)

    # Re-scores.

    def best(self) -> list[Candidate]:
        """The trials with the highest scores, the earlier one first among equals.

        Trials of an earlier call that asked for more are left out: every arm has equally many.
        """
        trials = [t for t in self.store.get_trials(deepcopy=False) if t.number < self.target]
        finished = [(each.value, each) for each in trials if each.state.name == "COMPLETE"]
        scored = [(value, each) for value, each in finished if value is not None]
        scored.sort(key=lambda pair: (-pair[0], pair[1].number))
        known, seeds = self.store.user_attrs, self.tuning.rescore_seeds
        return [
            Candidate(
                each.number,
                value,
                values_of(each.params, self.space),
                {seed: known.get(_rescore(each.number, seed), {}).get("score") for seed in seeds},
            )
            for value, each in scored[:BEST]
        ]

    def rescores_left(self) -> list[Job]:
        """The runs of the best trials on fresh seeds that have not ended."""
        known, jobs = self.store.user_attrs, []
        for candidate in self.best():
            values = (f"{key}={_text(value)}" for key, value in candidate.values.items())
            overrides = (*self.overrides, *values)
            for seed in self.tuning.rescore_seeds:
                if _rescore(candidate.trial, seed) not in known:
                    job = Job(self.arm, seed, overrides, trial=f"t{candidate.trial:03}")
                    self.numbers[job] = candidate.trial
                    jobs.append(job)
        return jobs

    def ranking(self) -> list[Candidate]:
        """The re-scored candidates, the highest mean first; one with a failed seed is left out."""
        complete = [candidate for candidate in self.best() if candidate.is_complete]
        return sorted(complete, key=lambda candidate: -candidate.mean)

    def rescore_runs(self, candidate: Candidate) -> list[str]:
        """The run folders of a candidate's re-scores."""
        known = self.store.user_attrs
        return [known[_rescore(candidate.trial, seed)]["run"] for seed in candidate.rescores]

    # The table.

    def table(self) -> list[dict[str, Any]]:
        """A row for each trial and each re-score: its seed, state, score and values."""
        rows, known = [], self.store.user_attrs
        trials = self.store.get_trials(deepcopy=False)
        for each in trials:
            head = {"run": "trial", "trial": each.number, "seed": self.tuning.seed}
            end = {"state": each.state.name.lower(), "score": each.value}
            rows.append(head | end | values_of(each.params, self.space))
        for each in trials:
            for seed in self.tuning.rescore_seeds:
                if (found := known.get(_rescore(each.number, seed))) is not None:
                    score = found["score"]
                    head = {"run": "rescore", "trial": each.number, "seed": seed}
                    end = {"state": "fail" if score is None else "complete", "score": score}
                    rows.append(head | end | values_of(each.params, self.space))
        return rows

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


def _open(storage: Storage, name: str) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="maximize",
        load_if_exists=True,
    )


def _rescore(trial: int, seed: int) -> str:
    """The stored name of a re-score."""
    return f"rescore of trial {trial}, seed {seed}"


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
