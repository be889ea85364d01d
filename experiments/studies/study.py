"""The schema of a study: arms and seeds, read from a YAML file.

Each arm is a list of overrides, as on the command line of run.py. An arm may start from the final
weights of another (`weights_of`). With `choice`, the value of one key is chosen for each arm by
short runs of that arm. `left_out` lists omissions and their reasons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from analysis.metrics import reported_metrics, without_temperature
from envs.command_line import did_you_mean, parse_values
from experiments.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "conf" / "study"
CONF = ROOT / "conf" / "experiment"
LESS_IS_BETTER = ("time", "memory")  # metrics of a claim that are no evaluation's
PARENTS = ("weights_of", "rollouts_of", "replay_of")  # keys that name another arm


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
        """{one of PARENTS: arm}."""
        return {key: arm for key in PARENTS if (arm := getattr(self, key)) is not None}


@dataclass
class Choice:
    """A key whose value is chosen for each arm by short runs, from the same candidates."""

    key: str
    values: Annotated[list[float], Field(min_length=2)]
    overrides: list[str]  # of the short runs, after the study's and the arm's
    seed: NonNegativeInt  # of the short runs


@dataclass
class Tuning:
    """Settings of hyperparameter tuning, the same for every arm (experiments/studies/tune.py)."""

    overrides: list[str]  # of a trial, after the study's and the arm's
    seed: NonNegativeInt  # of every trial, and of the sampler
    # of the best trials' further runs, which decide; none is the trials' or one of the study's
    rescore_seeds: Annotated[list[NonNegativeInt], Field(min_length=2)]
    # of the further runs, after those of a trial: e.g. the length of the study's runs, where a rate
    # that is best in a short trial may fail
    rescore_overrides: list[str] = field(default_factory=list)
    # best trials of each round that run again with rescore_overrides, on the trials' seed; 0: none
    longer: NonNegativeInt = 0
    rescored: PositiveInt = 3  # best ones of these, or of all trials, that get the fresh seeds


@dataclass
class Claim:
    """A paper's claim on two arms: `a` is above `b`, or at most `margin` below."""

    says: str
    a: str
    b: str
    metric: str  # of differences.csv, e.g. pass@10 or pass@10 (T=1); time, memory: less is better
    margin: NonNegativeFloat | None = None  # null: `a` is above

    def verdict(self, low: float, high: float) -> str:
        """held | not held | not decided, by the interval of a − b, where more is better."""
        bound = -(self.margin or 0.0)
        if low > bound or (self.margin and low == bound):
            return "held"
        return "not held" if high < bound else "not decided"


@dataclass
class Study:
    """A study as in its file."""

    question: str
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)]
    arms: Annotated[dict[str, Any], Field(min_length=1)]  # name → Arm
    name: str = ""  # of the experiment; empty: study-FILE
    overrides: list[str] = field(default_factory=list)  # of every arm
    choice: Choice | None = None
    tuning: Tuning | None = None
    final: bool = False  # no design follows from its results, so it may read the test split
    claims: list[Claim] = field(default_factory=list)
    gains: list[list[str]] = field(default_factory=list)  # pairs of arms to compare
    # a difference in pass@k up to which two arms are equal, for the report
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    control: str | None = None  # arm that the report compares each other one with
    order_by: str = ""  # a metric that orders the page's arms, descending; empty: as here
    threats: list[str] = field(default_factory=list)  # to validity
    left_out: dict[str, str] = field(default_factory=dict)  # item → reason
    took: str = ""  # how long it took, and on which machine; said before it begins

    @property
    def contrasts(self) -> list[dict[str, Any]]:
        """{a, b, metric, margin} of each gain, on every metric (null), and of each claim."""
        gains = [{"a": a, "b": b, "metric": None, "margin": None} for a, b in self.gains]
        return gains + [
            {"a": claim.a, "b": claim.b, "metric": claim.metric, "margin": claim.margin}
            for claim in self.claims
        ]

    @property
    def tuned_arms(self) -> list[str]:
        """The arms with values of their own: from the base model, with no other arm's values."""
        return [
            name
            for name, arm in self.arms.items()
            if not arm.parents
            and not any(_tuned_files(each) for each in self.untuned_overrides(name))
        ]

    def untuned_files(self, arm: str) -> list[str]:
        """The names of the arm's tuned values that `make tune` has not written yet."""
        names = [name for each in self.arms[arm].overrides for name in _tuned_files(each)]
        return [name for name in names if not (CONF / f"{name}.yaml").exists()]

    def untuned_overrides(self, arm: str) -> list[str]:
        """The arm's overrides without its own tuned file: trials start from the defaults."""
        kept = []
        for override in self.arms[arm].overrides:
            own = {file for file in _tuned_files(override) if file.endswith(f"_{arm}")}
            names = [name for name in _experiments(override) if name not in own]
            if not own:
                kept.append(override)
            elif names:
                kept.append(f"experiment=[{','.join(names)}]")
        return kept


def _experiments(override: str) -> list[str]:
    """The names in `experiment=...`, one or a list."""
    key, _, value = override.partition("=")
    return value.strip("[]").replace(" ", "").split(",") if key == "experiment" else []


def _tuned_files(override: str) -> list[str]:
    return [name for name in _experiments(override) if name.startswith("tuned_")]


class UniqueKeys(yaml.SafeLoader):
    """YAML in which a key stands once: of two arms with one name the first would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                fault = f"{key} stands twice"
                raise yaml.constructor.ConstructorError(None, None, fault, node.start_mark)
        return super().construct_mapping(node, deep)


def file_of(name: str) -> Path:
    """Return the YAML file of a study's name or path."""
    return Path(name) if name.endswith((".yaml", ".yml")) else HERE / f"{name}.yaml"


def read(name: str) -> Study:
    """Read a study beside this file by name, or any YAML file by path. Raises UserError."""
    file = file_of(name)
    try:
        values = yaml.load(file.read_text(encoding="utf-8"), UniqueKeys)
    except OSError as error:
        names = sorted(path.stem for path in HERE.glob("*.yaml"))
        near = did_you_mean(name, names)
        raise UserError(
            f"study={name}: {error.strerror}; {near}choose one of {', '.join(names)}, or FILE.yaml"
        ) from error
    except yaml.YAMLError as error:
        raise UserError(f"study={name}: invalid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        kind = {list: "a list", type(None): "nothing"}.get(type(values), "a single value")
        raise UserError(
            f"study={name}: there is {kind} in {file}; a study has keys: question, seeds, arms, …"
        )
    try:
        study = parse_values(Study, values)
        arms = {
            str(name): parse_values(Arm, values or {}, f"arms.{name}")
            for name, values in study.arms.items()
        }
    except ValueError as error:
        raise UserError(f"study={name}: {error}") from error
    _check_names(name, list(arms))
    _check_parents(name, arms, study.choice)
    _check_seeds(name, study)
    _check_comparisons(name, study, list(arms))
    return replace(study, arms=arms, name=study.name or f"study-{file.stem}")


def _check_names(name: str, arms: list[str]) -> None:
    """Raise UserError if A-B, a pair in sentences.yaml, is an arm too, or another pair."""
    pairs: dict[str, tuple[str, str]] = {}
    for pair in permutations(arms, 2):
        text = "-".join(pair)
        if text in arms:
            raise UserError(
                f"study={name}: arms.{text} can be read as {pair[0]} minus {pair[1]}; "
                f"write {text.replace('-', '_')}"
            )
        if text in pairs:
            one, other = (" minus ".join(each) for each in (pairs[text], pair))
            raise UserError(
                f"study={name}: {text} can be read as {one} and as {other}; "
                "name arms with _ in place of -"
            )
        pairs[text] = pair


def _check_comparisons(name: str, study: Study, arms: list[str]) -> None:
    """Raise UserError if a claim, a gain or the control names what is no arm."""
    for claim in study.claims:
        if missing := [arm for arm in (claim.a, claim.b) if arm not in arms]:
            raise UserError(
                f"study={name}: the claim {claim.says!r} names {missing[0]}, which is not an arm"
            )
        if claim.metric not in (*LESS_IS_BETTER, *_metrics_like(claim.metric)):
            raise UserError(
                f"study={name}: the claim {claim.says!r} has no such metric: {claim.metric}; a "
                "metric is pass@10, pass@10 (T=1), distinct_of_5, time, memory, …"
            )
    for pair in study.gains:
        if len(set(pair)) != 2 or (missing := [arm for arm in pair if arm not in arms]):
            fault = f"{missing[0]} is not an arm" if len(set(pair)) == 2 else "a gain has two arms"
            raise UserError(f"study={name}: gains: {pair}: {fault}")
    if study.control is not None and study.control not in arms:
        raise UserError(
            f"study={name}: control={study.control}: {did_you_mean(study.control, arms)}"
            f"it must be an arm: {', '.join(arms)}"
        )


def _metrics_like(metric: str) -> list[str]:
    """Return the metrics of a report that has this one's k and temperature."""
    main = without_temperature(metric)
    ks = [int(k) for k in re.findall(r"@([1-9]\d*)$", main)]
    return [each.name + metric.removeprefix(main) for each in reported_metrics(ks)]


def _check_seeds(name: str, study: Study) -> None:
    """Raise UserError if a value is chosen on a seed of the study, or a re-score's is not fresh."""
    for key, runs in (("choice", study.choice), ("tuning", study.tuning)):
        if runs is not None and runs.seed in study.seeds:
            raise UserError(
                f"study={name}: {key}.seed={runs.seed} is a seed of the study, so its values would "
                "be chosen on a compared run's problem order; give another seed"
            )
    if study.tuning is None:
        return
    fresh, used = study.tuning.rescore_seeds, {study.tuning.seed, *study.seeds}
    for seed in fresh:
        if seed in used or fresh.count(seed) > 1:
            raise UserError(
                f"study={name}: tuning.rescore_seeds={fresh}: {seed} is a seed of the trials, of "
                "the study, or there twice; give seeds of their own"
            )


def _check_parents(name: str, arms: dict[str, Arm], choice: Choice | None) -> None:
    for arm_name, arm in arms.items():
        if arm.rollouts_of and arm.replay_of:
            raise UserError(
                f"study={name}: arms.{arm_name} has rollouts_of and replay_of; frozen batches "
                "cannot be extended by replay, so remove one of the two"
            )
        for key, parent in arm.parents.items():
            setting = f"study={name}: arms.{arm_name}.{key}={parent}"
            if parent not in arms or arms[parent].parents:
                near = did_you_mean(parent, list(arms))
                raise UserError(
                    f"{setting}; {near}it must name an arm of the study that starts from the base "
                    "model and generates its own rollouts"
                )
            if key != "weights_of" and "train.keep_samples=true" not in arms[parent].overrides:
                raise UserError(
                    f"{setting}: give arms.{parent} the override train.keep_samples=true"
                )
            if choice:
                raise UserError(
                    f"{setting} with a choice: the short runs would start from other weights; "
                    "remove one of the two"
                )
