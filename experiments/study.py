"""Run a study: every arm on every seed, then the report.

    python -m experiments.study study=front [jobs=N] [seeds=0,1] [arms=A,B] [KEY=VALUE ...]

A study is a YAML file in conf/study. Each arm is a list of overrides, as on run.py's command line;
KEY=VALUE overrides a key of every run. The same command again keeps finished runs and resumes
stopped ones. output_dir/NAME-OF-THE-STUDY holds the run folders, logs/ (the output of each run),
arms.json (which run belongs to which arm), contrasts.json (the pairs in gains and claims), and
report/.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations, product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from analysis.metrics import AT_EQUAL, reported_metrics, without_temperature
from envs.command_line import CONF, did_you_mean, parse_arguments, parse_values, wants_help
from experiments import runner
from experiments.config.composition import config_of
from experiments.config.schema import RunConfig
from experiments.errors import FAILED, UserError, exit_with
from experiments.run_dir.interrupts import exit_on_interrupt
from experiments.run_dir.records import STUDY_VARIABLE
from experiments.runner import Again, Workers, default_workers

STUDIES = CONF / "study"
LESS_IS_BETTER = ("time", "memory")  # metrics of a claim that are no evaluation's
Schema = TypeVar("Schema")
Value = TypeVar("Value")


@dataclass
class Arm:
    """A compared configuration, run on every seed."""

    overrides: list[str] = field(default_factory=list)
    weights_of: str | None = None  # arm whose final weights it starts from (same seed)
    rollouts_of: str | None = None  # arm that recorded the batches it trains on (same seed)
    replay_of: str | None = None  # arm whose recorded responses, and no others, it replays
    search: str | None = None  # its search space in conf/algo/_search/; null: its algorithm's

    @property
    def parents(self) -> dict[str, str]:
        """{key of TAKES: arm}."""
        return {key: arm for key in runner.TAKES if (arm := getattr(self, key)) is not None}


@dataclass
class Tuning:
    """Settings of hyperparameter tuning, the same for every arm (experiments/tune.py)."""

    overrides: list[str]  # of a trial, after the study's and the arm's
    seed: NonNegativeInt  # of every trial, and of the sampler
    # of the best trials' further runs, which decide; none is the trials' or one of the study's
    rescore_seeds: Annotated[list[NonNegativeInt], Field(min_length=2)]
    # of the further runs, after those of a trial: e.g. the length of the study's runs, where a rate
    # that is best in a short trial may fail
    rescore_overrides: list[str] = field(default_factory=list)
    # best trials that run again with rescore_overrides, on the trials' seed; 0: none
    longer: NonNegativeInt = 0
    rescored: PositiveInt = 3  # best ones of these, or of all trials, that get the fresh seeds


@dataclass
class Claim:
    """A paper's claim on two arms: `a` is above `b`, or at most `margin` below.

    With `over`, two further arms c and d: the difference a - b is above c - d.
    """

    says: str
    a: str
    b: str
    metric: str  # of differences.csv, e.g. pass@10 or pass@10 (T=1); time, memory: less is better
    margin: NonNegativeFloat | None = None  # null: `a` is above
    at_equal: Literal["pass@1"] | None = None  # on the front (analysis/front.py); null: at the end
    over: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None  # [c, d]

    @property
    def arms(self) -> list[str]:
        return [self.a, self.b, *(self.over or ())]

    @property
    def column(self) -> str:
        """The metric of differences.csv."""
        return f"{self.metric}{AT_EQUAL}" if self.at_equal else self.metric


@dataclass
class Study:
    """A study as in its file."""

    question: str
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)]
    arms: Annotated[dict[str, Any], Field(min_length=1)]  # name → Arm
    name: str = ""  # of the experiment; empty: study-FILE
    overrides: list[str] = field(default_factory=list)  # of every arm
    tuning: Tuning | None = None
    final: bool = False  # no design follows from its results, so it may read the test split
    claims: list[Claim] = field(default_factory=list)
    gains: list[list[str]] = field(default_factory=list)  # pairs of arms to compare
    # a difference in pass@k up to which two arms are equal, for the report
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    control: str | None = None  # arm that the report compares each other one with
    presets: dict[str, list[str]] = field(default_factory=dict)  # name → arms that a page shows
    threats: list[str] = field(default_factory=list)  # to validity
    left_out: dict[str, str] = field(default_factory=dict)  # item → reason
    took: str = ""  # how long it took, and on which machine; said before it begins

    @property
    def contrasts(self) -> list[dict[str, Any]]:
        """{a, b, metric, margin} of each gain, on every metric (null), and of each claim."""
        gains: list[dict[str, Any]] = [
            {"a": a, "b": b, "metric": None, "margin": None} for a, b in self.gains
        ]
        for claim in self.claims:
            a, b = claim.a, claim.b
            if claim.over:
                a, b = f"({a} - {b})", f"({claim.over[0]} - {claim.over[1]})"
            gains.append({"a": a, "b": b, "metric": claim.column, "margin": claim.margin})
        return gains


class UniqueKeys(yaml.SafeLoader):
    """YAML in which a key stands once: of two arms with one name the first would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key} stands twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def read(name: str) -> Study:
    """Read a study of conf/study by name, or any YAML file by path. Raises UserError."""
    file = Path(name) if name.endswith((".yaml", ".yml")) else STUDIES / f"{name}.yaml"
    try:
        values = yaml.load(file.read_text(encoding="utf-8"), UniqueKeys)
        study = parse_values(Study, values)
        arms = {
            str(arm): parse_values(Arm, values or {}, f"arms.{arm}")
            for arm, values in study.arms.items()
        }
        study = replace(study, arms=arms, name=study.name or f"study-{file.stem}")
        for fault in _faults(study):
            raise ValueError(fault)
    except OSError as error:
        names = sorted(path.stem for path in STUDIES.glob("*.yaml"))
        near = f"{did_you_mean(name, names)}choose one of {', '.join(names)}, or FILE.yaml"
        raise UserError(f"study={name}: {error.strerror}; {near}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"study={name}: {' '.join(str(error).split())}") from error
    return study


def _faults(study: Study) -> list[str]:
    """Return what would compare other runs than the file seems to say."""
    arms, faults = list(study.arms), list[str]()
    pairs = [("control", [study.control])] if study.control else []
    pairs += [(f"gains: {pair}", pair) for pair in study.gains]
    pairs += [(f"claims: {claim.says!r}", claim.arms) for claim in study.claims]
    for where, names in pairs:
        faults += [
            f"{where}: {did_you_mean(name, arms)}{name} is no arm; arms: {', '.join(arms)}"
            for name in names
            if name not in arms
        ]
    for claim in study.claims:
        main = without_temperature(claim.metric)
        ks = [int(k) for k in re.findall(r"@([1-9]\d*)$", main)]
        if main not in (*LESS_IS_BETTER, *(metric.name for metric in reported_metrics(ks))):
            faults.append(f"claims: {claim.says!r}: there is no metric {claim.metric}")
        if claim.over and (claim.margin is not None or claim.at_equal or main in LESS_IS_BETTER):
            faults.append(
                f"claims: {claim.says!r}: over compares differences of an evaluation's metric at "
                "the end; leave out margin and at_equal, and name no metric of cost (time, memory)"
            )
    for name, arm in study.arms.items():
        for key, parent in arm.parents.items():
            of = study.arms.get(parent)
            if of is None or of.parents:
                faults.append(f"arms.{name}.{key}={parent}; it must be an arm without such a key")
            elif key != "weights_of" and "train.keep_samples=true" not in of.overrides:
                faults.append(f"arms.{name}.{key}={parent}; {parent} needs train.keep_samples=true")
    if tuning := study.tuning:
        seeds = [*study.seeds, tuning.seed, *tuning.rescore_seeds]
        if repeated := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
            faults.append(
                f"tuning: seed {repeated[0]} stands twice among seeds, tuning.seed and "
                "tuning.rescore_seeds; values must be chosen on seeds of their own"
            )
    return faults


# The runs of a study.


def study_jobs(
    study: Study, seeds: Sequence[int], arms: Sequence[str], more: Sequence[str] = ()
) -> list[runner.Job]:
    """All runs, seed by seed, so that each seed completes a comparison; parents come first.

    `more`: overrides of every run. Raises UserError for an invalid configuration, with its arm.
    """
    configs = {arm: _config(study, arm, more) for arm in arms}
    for arm in arms:
        for parent in study.arms[arm].parents.values():
            configs.setdefault(parent, _config(study, parent, more))
    alone = [arm for arm in configs if not study.arms[arm].parents]
    for one, other in combinations(alone, 2):
        if configs[one][1] == configs[other][1]:  # a run is found by its configuration
            raise UserError(f"arms {one} and {other} have the same configuration; leave one out")
    jobs: dict[tuple[str, int], runner.Job] = {}

    def add(arm: str, seed: int) -> runner.Job:
        if (job := jobs.get((arm, seed))) is None:
            parents = {key: add(p, seed) for key, p in study.arms[arm].parents.items()}
            overrides, config = configs[arm]
            config = replace(config, seed=seed)
            job = runner.Job(f"{arm}-s{seed}", (*overrides, f"seed={seed}"), config, parents)
            jobs[arm, seed] = job
        return job

    for seed, arm in product(seeds, arms):
        add(arm, seed)
    return list(jobs.values())


def _config(study: Study, name: str, more: Sequence[str]) -> tuple[tuple[str, ...], RunConfig]:
    """Return an arm's overrides and their configuration, as far as they are known."""
    arm = study.arms[name]
    given = (f"name={study.name}", *study.overrides, *arm.overrides, *more)
    try:
        overrides = tuple(given)
        config = config_of(overrides)
        if arm.weights_of:
            overrides = (*overrides, f'model.name="{config.model.name}-after-{arm.weights_of}"')
        if arm.rollouts_of:
            overrides = (*overrides, "replay.frozen=false")  # valid before the batches exist
        if arm.replay_of:
            overrides = (*overrides, "replay.own=true")  # likewise
        if study.final and config.eval.split == "test":
            overrides = (*overrides, "eval.final=true")
        config = config_of(overrides)
    except UserError as error:
        raise UserError(f"arm {name}: {error}") from error
    measured = [k for k in config.eval.k if k <= config.eval.samples]
    for claim in study.claims:
        k = re.search(r"@(\d+)", claim.metric)
        if k and name in claim.arms and int(k[1]) not in measured and not more:
            raise UserError(
                f"arm {name}: the claim {claim.says!r} is on {claim.metric}; add {k[1]} to eval.k"
            )
    return overrides, config


# The command.


@dataclass
class Options:
    """The command's own keys."""

    study: str = "front"  # a file of conf/study, or FILE.yaml
    # parallel runs; by default, and with auto, one for each GPU, or without one for each core
    jobs: Workers = field(default_factory=default_workers)
    seeds: str | None = None  # only these of the study's seeds, with commas between them
    arms: str | None = None  # only these of the study's arms, and the arms they start from
    again: Again = "never"  # always: begin all runs anew, also those that have finished
    plan: bool = False  # print the runs, how they stand, and their time and disk, then exit
    live: bool = False  # one run at a time, with its own output on the screen instead of in logs/


def run_study(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status. Raises UserError."""
    options, overrides = split_arguments(Options, arguments)
    study = read(options.study)
    seeds = choose("seeds", options.seeds, study.seeds)
    jobs = study_jobs(study, seeds, choose("arms", options.arms, list(study.arms)), overrides)
    print(f"{study.name}: {study.question}", *([f"It took {study.took}."] if study.took else []))
    if options.plan:
        runner.print_plan(jobs, 1 if options.live else options.jobs, options.again)
        return 0
    runner.check_runs([job.config for job in jobs if not job.parents])
    os.environ[STUDY_VARIABLE] = study.name
    folder = Path(jobs[0].config.output_dir) / study.name
    running = runner.Runner(jobs, 0 if options.live else options.jobs, options.again, options.live)
    try:
        running.run()
    except KeyboardInterrupt:
        runner.print_table(jobs)
        raise
    arms = write_arms(study, jobs, folder)
    failures = runner.print_table(jobs)
    from analysis.report import main as report

    keys = [] if study.margin is None else [f"margin={study.margin:g}"]
    if study.control in {arm["arm"] for arm in arms if arm["status"] == "finished"}:
        keys.append(f"control={study.control}")
    reported = report([f"runs={folder}", f"out={folder / 'report'}", *keys])
    return FAILED if failures or reported else 0


def write_arms(study: Study, jobs: Sequence[runner.Job], folder: Path) -> list[dict[str, Any]]:
    """Write arms.json and contrasts.json; return the former."""
    folder.mkdir(parents=True, exist_ok=True)
    arms = [
        {
            "arm": job.label.rpartition("-s")[0],
            "seed": job.config.seed,
            "trial": False,
            "status": job.end.status,
            "run": str(job.end.folder) if job.end.folder else None,
            "overrides": list(job.overrides),
        }
        for job in jobs
    ]
    (folder / "arms.json").write_text(json.dumps(arms, indent=1) + "\n")
    (folder / "contrasts.json").write_text(json.dumps(study.contrasts, indent=1) + "\n")
    return arms


def command(doc: str | None, schema: type, act: Callable[[Sequence[str]], int]) -> None:
    """Run a command of studies or tuning, and end the process with its status."""
    exit_on_interrupt()
    if wants_help(sys.argv[1:]):
        parse_arguments(schema, sys.argv[1:], doc)
    exit_with(lambda: act(sys.argv[1:]), runner.RESUMES)


def split_arguments(schema: type[Schema], arguments: Sequence[str]) -> tuple[Schema, list[str]]:
    """Separate the command's own keys, as a `schema`, from overrides of runs. Raises UserError."""
    keys = {each.name for each in fields(schema)}  # type: ignore[arg-type]
    own = [argument for argument in arguments if argument.partition("=")[0] in keys]
    overrides = [argument for argument in arguments if argument not in own]
    known = {each.name for each in fields(RunConfig)} | {"experiment"}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        if "." not in key and key not in known:
            near = did_you_mean(key, sorted(keys | known))
            raise UserError(f"{override}: no key of this command or of a run; {near}(see --help)")
        if key == "seed":
            raise UserError(f"{override}: a study has its own seeds")
    try:
        return parse_arguments(schema, own), overrides
    except ValueError as error:
        raise UserError(str(error)) from None


def choose(key: str, text: str | None, choices: Sequence[Value]) -> list[Value]:
    """The values listed with commas, in the order of `choices`; None: all. Raises UserError."""
    listed = list(map(str, choices)) if text is None else text.split(",")
    for value in listed:
        if value not in map(str, choices):
            near = did_you_mean(value, list(map(str, choices)))
            raise UserError(f"{key}={value}: {near}choose from {', '.join(map(str, choices))}")
    return [value for value in choices if str(value) in listed]


if __name__ == "__main__":
    command(__doc__, Options, run_study)
