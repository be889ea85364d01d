"""Tune all arms of a study by one protocol: docs/reference/protocol.md.

    python -m experiments.tune study=front [trials=24] [arms=A,B] [jobs=N] [KEY=VALUE ...]

Each arm gets the same number of trials, steps and tuned keys. A trial is a run on the tune split
with values that Optuna proposes; KEY=VALUE overrides a key of every trial. The best trials run
again: with tuning.longer, as many on the trials' seed, with tuning.rescore_overrides; then the best
tuning.rescored of these on tuning.rescore_seeds, whose highest mean decides.

Proposed values and scores are in output_dir/STUDY-tuning/trials.sqlite before the next run starts,
and further runs are found by their configuration. So the same command resumes after any end. It
writes tables of all runs to docs/results/tuned-STUDY/, and the winners to
conf/experiment/tuned_STUDY_ARM.yaml; of a study given by path, beside its file.
"""

from __future__ import annotations

import csv
import json
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import jinja2
import numpy as np
import yaml
from omegaconf import OmegaConf
from pydantic import PositiveInt

from analysis.budgets import curve_score
from analysis.figures import Axis, Series, axis_range, legend_panel
from analysis.rendering import markdown_table
from analysis.runs import load_run
from envs.command_line import CONF, parse_values
from experiments.config.composition import config_of
from experiments.config.schema import RunConfig
from experiments.errors import FAILED, UserError
from experiments.run_dir.atomic_files import lock
from experiments.runner import Job, Runner, Workers, check_runs, default_workers, say
from experiments.study import Study, Tuning, choose, command, read, split_arguments

SPACES = CONF / "algo" / "_search"
WINNER = Path(__file__).with_name("tuned.yaml.j2")  # its experiment file
EDGE = 0.1  # a value that is closer to an end of its range than this share of it stands at an edge
SCORE = "area under (pass@1 + pass@10)/2"
LUCKY, RESAMPLES = 5, 1000  # trials of the summary's expected best, and of its band
MIN_SAMPLES = 10  # of each problem: pass@10 is part of a score
Values = dict[str, Any]


@dataclass
class Options:
    """The command's own keys."""

    study: str = "front"  # a file of conf/study, or FILE.yaml; its `tuning` sets a trial's length
    trials: PositiveInt = 24  # of each arm
    arms: str | None = None  # only these; by default all that have values of their own
    # parallel runs; by default, and with auto, one for each GPU, or without one for each core
    jobs: Workers = field(default_factory=default_workers)


# Search spaces.


@dataclass
class Range:
    """The values of one key: between low and high, or one of the choices."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # sample the logarithm uniformly
    zero: bool = False  # or exactly 0: as likely as the range, until trials tell them apart
    choices: list[Any] | None = None

    def suggest(self, trial: Any, key: str) -> Any:
        """Ask an Optuna trial for a value; a value that it already has stays."""
        if self.choices:
            return trial.suggest_categorical(key, self.choices)
        if self.zero and trial.suggest_categorical(f"{key} is 0", [False, True]):
            return 0.0
        # in four digits: the run has the value of the table and of the experiment file
        return float(f"{trial.suggest_float(key, self.low, self.high, log=self.log):.4g}")

    def place(self, value: Any) -> str:
        """Say where a value stands in its range; "at the low edge", if it does."""
        if self.choices or (self.zero and value == 0):
            return "a choice" if self.choices else "0 is allowed"
        scale = math.log if self.log else float
        low, high, here = (scale(each) for each in (self.low or 0.0, self.high or 0.0, value))
        share = (here - low) / (high - low)
        side = "low" if share < 0.5 else "high"
        near = min(share, 1 - share)
        where = f"{near:.0%} of {self.low:g} to {self.high:g} from the {side} edge"
        return f"at the {side} edge: {where}" if near < EDGE else where


Space = dict[str, Range]


def read_space(algo: str, search: str | None = None) -> Space:
    """The search space named `search`, else the algorithm's, else the default. Raises UserError."""
    file = SPACES / f"{search or algo}.yaml"
    if not file.is_file() and not search:
        file = SPACES / "_default.yaml"
    try:
        values = yaml.safe_load(file.read_text())
        space = {key: parse_values(Range, each, key) for key, each in values.items()}
        for key, each in space.items():
            bounded = each.low is not None and each.high is not None and each.low < each.high
            if bounded == bool(each.choices) or ((each.log or each.zero) and not each.low):
                raise ValueError(f"{key}: give choices, or low below high (above 0 with log, zero)")
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {error}") from error
    return space


# One arm.


@dataclass
class Tuner:
    """An arm's trials, and the further runs of the best.

    Raises UserError if stored trials had other settings.
    """

    arm: str
    overrides: tuple[str, ...]  # of a trial
    space: Space
    tuning: Tuning
    options: Options
    storage: str
    rows: list[dict[str, Any]] = field(default_factory=list)  # of the table of all runs
    longer: dict[int, float] = field(default_factory=dict)  # trial → score of its longer run
    rescores: dict[int, list[float]] = field(default_factory=dict)  # trial → on the fresh seeds
    folders: list[Path] = field(default_factory=list)  # of the re-scores

    def __post_init__(self) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        where: dict[str, Any] = {"storage": self.storage, "study_name": self.arm}
        self.store = optuna.create_study(direction="maximize", load_if_exists=True, **where)
        made_with = {"overrides": list(self.overrides), "seed": self.tuning.seed} | {
            key: asdict(each) for key, each in self.space.items()
        }
        if self.store.user_attrs.get("made_with", made_with) != made_with:
            raise UserError(
                f"arm {self.arm}: earlier trials had other settings; choose another output_dir"
            )
        self.store.set_user_attr("made_with", made_with)

    def run(self) -> None:
        """Run what is left of the trials, the longer runs and the re-scores."""
        from optuna.trial import Trial, TrialState

        numbers: dict[Job, int] = {}

        def job_of(trial: Trial) -> Job:
            values = {key: each.suggest(trial, key) for key, each in self.space.items()}
            job = self.job(trial.number, values, self.tuning.seed)
            numbers[job] = trial.number
            return job

        def ask() -> list[Job]:
            number = len(self.store.get_trials(deepcopy=False))
            if number >= self.options.trials:
                return []
            self.store.sampler = sampler(self.tuning.seed, number, self.options.trials // 2)
            return [job_of(self.store.ask())]

        def after(job: Job) -> list[Job]:
            value = score(job)
            state = TrialState.FAIL if value is None else TrialState.COMPLETE
            self.store.tell(numbers[job], value, state=state)
            return ask()

        jobs = []
        for each in self.store.get_trials(states=(TrialState.RUNNING,)):  # stopped ones
            self.store.sampler = sampler(self.tuning.seed, each.number, self.options.trials // 2)
            jobs.append(job_of(Trial(self.store, each._trial_id)))
        while len(jobs) < self.options.jobs and (new := ask()):
            jobs += new
        Runner(jobs, self.options.jobs, after=after).run()
        for each in self.store.get_trials(deepcopy=False):
            state = each.state.name.lower()
            self.add_row("trial", each.number, self.tuning.seed, each.value, state)
        order = sorted(self.scores(), key=lambda number: (-self.scores()[number], number))
        if self.tuning.longer:
            runs = self.run_again(order, self.tuning.longer, [self.tuning.seed], "longer")
            self.longer = {number: scores[0] for number, scores in runs.items()}
            order = sorted(self.longer, key=lambda number: (-self.longer[number], number))
        seeds = self.tuning.rescore_seeds
        self.rescores = self.run_again(order, self.tuning.rescored, seeds, "rescore")

    def run_again(
        self, order: Sequence[int], number: int, seeds: Sequence[int], kind: str
    ) -> dict[int, list[float]]:
        """Run the first `number` trials of `order` on each seed; return their scores.

        Where one of its runs fails, the next best trial takes the place of a trial.
        """
        done: dict[int, list[float]] = {}
        waiting = list(order)
        while waiting and len(done) < number:
            batch = [waiting.pop(0) for _ in range(min(number - len(done), len(waiting)))]
            say(f"{self.arm}: trials {', '.join(map(str, batch))} {kind}")
            jobs = {
                (trial, seed): self.job(trial, self.values(trial), seed, again=True)
                for trial in batch
                for seed in seeds
            }
            Runner(list(jobs.values()), self.options.jobs).run()
            for trial in batch:
                scores = [score(jobs[trial, seed]) for seed in seeds]
                for seed, each in zip(seeds, scores, strict=True):
                    self.add_row(kind, trial, seed, each, "fail" if each is None else "complete")
                if len(whole := [each for each in scores if each is not None]) == len(seeds):
                    done[trial] = whole
                    self.folders += [f for s in seeds if (f := jobs[trial, s].end.folder)]
        return done

    def job(self, trial: int, values: Values, seed: int, again: bool = False) -> Job:
        """The run of a trial's values; `again`: with tuning.rescore_overrides."""
        more = self.tuning.rescore_overrides if again else []
        own = [f"{key}={_text(value)}" for key, value in values.items()]
        overrides = (*self.overrides, *more, *own, f"seed={seed}")
        label = f"{self.arm}-t{trial:03}-s{seed}{'-again' * again}"
        return Job(label, overrides, config_of(overrides))

    def scores(self) -> dict[int, float]:
        """Trial → its own score, of those that finished."""
        trials = self.store.get_trials(deepcopy=False)[: self.options.trials]
        return {each.number: each.value for each in trials if each.value is not None}

    def values(self, number: int) -> Values:
        """A trial's value of each key; None where it was killed before it had one."""
        params = self.store.get_trials(deepcopy=False)[number].params
        values: Values = {}
        for key in self.space:
            value = 0.0 if params.get(f"{key} is 0") else params.get(key)
            values[key] = float(f"{value:.4g}") if isinstance(value, float) else value
        return values

    def add_row(self, run: str, trial: int, seed: int, value: float | None, state: str) -> None:
        head = {"run": run, "trial": trial, "seed": seed, "state": state, "score": value}
        self.rows.append(head | self.values(trial))

    @property
    def ranking(self) -> list[int]:
        """The re-scored trials, the highest mean first."""
        return sorted(self.rescores, key=lambda number: -fmean(self.rescores[number]))

    def ties(self) -> list[int]:
        """The other trials whose mean is within one standard error of the difference."""
        best, *others = self.ranking
        gaps = ((n, fmean(self.rescores[best]) - fmean(self.rescores[n])) for n in others)
        return [n for n, gap in gaps if gap <= math.hypot(self.error(best), self.error(n))]

    def error(self, number: int) -> float:
        """Standard error of the mean of a trial's re-scores."""
        return stdev(self.rescores[number]) / len(self.rescores[number]) ** 0.5

    def mean(self, number: int) -> str:
        return f"{fmean(self.rescores[number]):.4f} ± {self.error(number):.4f}"


def sampler(seed: int, number: int, start: int) -> Any:
    """Return the sampler of one trial, from its number alone: it is the same after a kill.

    Random for the first `start` trials by number, TPE for the others: a trial that failed makes no
    later one random. The first key has the same random values for every arm.
    """
    from optuna.samplers import RandomSampler, TPESampler

    stream = zlib.crc32(f"{seed} {number}".encode())
    if number < start:
        return RandomSampler(stream)
    return TPESampler(seed=stream, n_startup_trials=1, constant_liar=True)


def score(job: Job) -> float | None:
    """The area under a finished run's learning curve; None if it failed or has no whole curve."""
    if job.end.status != "finished" or job.end.folder is None:
        return None
    area = curve_score(load_run(job.end.folder))
    return None if math.isnan(area) else area


# The command.


def tune(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status. Raises UserError."""
    options, overrides = split_arguments(Options, arguments)
    study, stem = read(options.study), Path(options.study).stem
    if study.tuning is None:
        raise UserError(f"study={options.study}: it has no `tuning`, which a trial follows")
    own = {
        name: f"experiment=tuned_{stem}_{name}"
        for name, arm in study.arms.items()
        if not arm.parents
    }
    tuned = [  # not those with another arm's values
        name
        for name, file in own.items()
        if not any(
            o.startswith("experiment=tuned_") and o != file for o in study.arms[name].overrides
        )
    ]
    trials, spaces = {}, {}
    for name in tuned:
        arm = [each for each in study.arms[name].overrides if each != own[name]]
        trial = [f"name={study.name}-tuning", *study.overrides, *arm, *study.tuning.overrides]
        trials[name] = (*trial, *overrides)
        try:
            config = config_of(trials[name])
            _check_scored(config)
            _check_scored(config_of([*trials[name], *study.tuning.rescore_overrides]))
        except UserError as error:
            raise UserError(f"arm {name}: {error}") from error
        spaces[name] = read_space(config.algo.name, study.arms[name].search)
    if len({len(space) for space in spaces.values()}) > 1:
        counts = ", ".join(f"{name} {len(space)}" for name, space in spaces.items())
        raise UserError(f"{SPACES}: every arm must tune the same number of keys, not {counts}")
    arms = choose("arms", options.arms, tuned)
    configs = {name: config_of(trials[name]) for name in arms}
    check_runs(list(configs.values()))
    folder = Path(configs[arms[0]].output_dir) / f"{study.name}-tuning"
    folder.mkdir(parents=True, exist_ok=True)
    storage, tuning_lock = f"sqlite:///{folder.absolute() / 'trials.sqlite'}", lock(folder)
    tuners = [Tuner(n, trials[n], spaces[n], study.tuning, options, storage) for n in arms]
    for tuner in tuners:
        say(f"{tuner.arm}: {options.trials} trials")
        tuner.run()
        print(*_write(options.study, study, tuner, configs[tuner.arm]), sep="\n")
    os.close(tuning_lock)
    print(text := _summary(tuners))
    if arms == tuned:
        page = _results_folder(options.study) / f"tuned-{stem}.md"
        page.with_suffix(".svg").write_text(_luck_figure(tuners))
        page.write_text(f"{text}\n\n![expected best of n trials]({page.stem}.svg)\n")
    return 0 if all(tuner.ranking for tuner in tuners) else FAILED


def _check_scored(config: RunConfig) -> None:
    """Raise UserError if a run has no score by which to tune, or not of the tune split."""
    made = config.eval
    if made.split != "tune":
        raise UserError(f"tuning: eval.split={made.split}; values are chosen on tune alone")
    if made.samples < MIN_SAMPLES:
        raise UserError(f"tuning: eval.samples={made.samples}; pass@10 needs {MIN_SAMPLES} or more")
    if not 0 < made.every < config.steps:
        raise UserError(
            f"tuning: eval.every={made.every} in steps={config.steps}; the score is an area, so it "
            "must also be evaluated between its start and its end"
        )


def _results_folder(name: str) -> Path:
    """docs/results, or the folder of a study that is given by path."""
    by_path = name.endswith((".yaml", ".yml"))
    return Path(name).parent if by_path else CONF.parent / "docs" / "results"


def _write(name: str, study: Study, tuner: Tuner, config: RunConfig) -> list[Path]:
    """Write the arm's table and the winner's experiment file; returns their paths."""
    stem, folder = Path(name).stem, _results_folder(name)
    file = folder / f"tuned-{stem}" / f"{tuner.arm}.csv"
    file.parent.mkdir(exist_ok=True)
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(tuner.rows[0]))
        writer.writeheader()
        writer.writerows(tuner.rows)
    if not tuner.ranking:
        return [file]
    at = CONF / "experiment" if folder.name == "results" else folder
    winner = at / f"tuned_{stem}_{tuner.arm}.yaml"
    best, tuning = tuner.ranking[0], tuner.tuning
    commits = {str(json.loads((f / "run.json").read_text())["commit"]) for f in tuner.folders}
    again = f" ({' '.join(tuning.rescore_overrides)})" if tuning.rescore_overrides else ""
    longer = f"{len(tuner.longer)} of the best again{again}, " if tuner.longer else ""
    how = (
        f"{tuner.options.trials} trials ({' '.join(tuning.overrides)}), {longer}"
        f"{len(tuner.rescores)} of the best on {len(tuning.rescore_seeds)} fresh seeds{again}, "
        f"table {file.parent.name}/{file.name}"
    )
    pairs = [override.partition("=")[::2] for override in study.arms[tuner.arm].overrides]
    own = {key: yaml.safe_load(value) for key, value in pairs if "." in key}
    nested = OmegaConf.create({"name": f"tuned_{stem}", "tuned": how})
    for key, value in (own | tuner.values(best)).items():
        OmegaConf.update(nested, key, value)
    template = jinja2.Template(WINNER.read_text(), trim_blocks=True, keep_trailing_newline=True)
    winner.write_text(
        template.render(
            name=winner.stem,
            best=best,
            tuner=tuner,
            stem=stem,
            commits=", ".join(sorted(commits)),
            score=SCORE,
            split=config.eval.split,
            algo=config.algo.name,
            values=yaml.safe_dump(OmegaConf.to_container(nested), sort_keys=False).rstrip("\n"),
        )
    )
    return [file, winner]


def expected_best(scores: np.ndarray) -> np.ndarray:
    """Return the expected best of n trials drawn from these without replacement.

    scores (…, trials) → (…, trials), n from 1 on: E_n = Σ_i C(i − 1, n − 1)/C(N, n) v_(i), with
    v_(1) the least score. (Dodge et al. 2019, arXiv 1909.03004, draw with replacement.)
    """
    ordered, count = np.sort(scores, axis=-1), scores.shape[-1]
    ways = [[math.comb(i, n) / math.comb(count, n + 1) for i in range(count)] for n in range(count)]
    return ordered @ np.array(ways).T


def _luck(tuner: Tuner) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `expected_best` of an arm's trials and its 95 % band, by resampling the trials.

    A failed trial scores 0. Optuna proposes later trials where earlier ones were good; the order is
    not used.
    """
    found = list(tuner.scores().values())
    scores = np.array([*found, *[0.0] * (tuner.options.trials - len(found))])
    again = np.random.default_rng(0).choice(scores, (RESAMPLES, len(scores)))
    return expected_best(scores), *np.quantile(expected_best(again), [0.025, 0.975], axis=0)


def _luck_figure(tuners: Sequence[Tuner]) -> str:
    """Return an SVG: which arms need luck, or many trials, to be tuned."""
    trials = np.arange(1, tuners[0].options.trials + 1)
    series = [Series(tuner.arm, trials, *_luck(tuner), markers=False) for tuner in tuners]
    x = Axis("trials", 1, max(2, len(trials)), whole=True)
    y = Axis("expected best score", *axis_range(one.y for one in series))
    return legend_panel("expected best of n trials", x, y, series).file()


def _summary(tuners: Sequence[Tuner]) -> str:
    """The final table: each arm's winner, its scores, and where its values stand."""
    rows = []
    for tuner in tuners:
        if not tuner.ranking:
            rows.append([tuner.arm, *["–"] * 6])
            continue
        luck = [band[min(LUCKY, len(band)) - 1] for band in _luck(tuner)]
        best, values = tuner.ranking[0], tuner.values(tuner.ranking[0])
        rows.append(
            [
                tuner.arm,
                ", ".join(f"{key}={_text(value)}" for key, value in values.items()),
                f"{tuner.scores()[best]:.4f}",
                tuner.mean(best),
                "{:.3f} [{:.3f}, {:.3f}]".format(*luck),
                ", ".join(f"trial {n} ({tuner.mean(n)})" for n in tuner.ties()) or "none",
                "; ".join(f"{key}: {tuner.space[key].place(v)}" for key, v in values.items()),
            ]
        )
    heading = ["arm", "winner", "score", "mean ± s.e.", f"expected best of {LUCKY}"]
    heading += ["ties", "place in its range"]
    return f"Score: {SCORE}.\n\n{markdown_table(heading, rows)}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    command(__doc__, Options, tune)
