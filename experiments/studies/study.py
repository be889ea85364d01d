"""What a study compares: a written matrix of arms and seeds, read from a YAML file.

Each arm is a list of overrides, as on the command line of run.py. An arm may begin with the final
weights of another (`weights_of`), and all may take one value from short runs of their own
(`choice`). What was left out stands in the file too, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, NonNegativeFloat, NonNegativeInt

from envs.config_parsing import did_you_mean, parse_values
from experiments.errors import UserError

HERE = Path(__file__).resolve().parent
PARENTS = ("weights_of", "rollouts_of", "replay_of")  # what an arm takes of another


@dataclass
class Arm:
    """One setting that is compared, run on every seed."""

    overrides: list[str] = field(default_factory=list)
    weights_of: str | None = None  # the arm whose final weights of the same seed it begins with
    rollouts_of: str | None = None  # the arm on whose kept batches of the same seed it trains
    replay_of: str | None = None  # the arm whose kept responses, and no others, it replays

    @property
    def parents(self) -> dict[str, str]:
        """What it takes → the arm that it takes it from."""
        return {key: arm for key in PARENTS if (arm := getattr(self, key)) is not None}


@dataclass
class Choice:
    """One key whose value each arm takes from short runs of its own: the same values for all."""

    key: str
    values: Annotated[list[float], Field(min_length=2)]
    overrides: list[str]  # of the short runs, beside the study's and the arm's
    seed: NonNegativeInt  # of the short runs


@dataclass
class Tuning:
    """How each algorithm's values are looked for, alike for all (experiments/studies/tune.py)."""

    overrides: list[str]  # of a trial, beside the study's and the arm's
    seed: NonNegativeInt  # of every trial, and of the sampler


@dataclass
class Claim:
    """What a paper says of two arms: that `a` lies above `b`, or not more than `margin` below."""

    says: str
    a: str
    b: str
    metric: str  # of differences.csv; time or memory, of which less is better
    margin: NonNegativeFloat | None = None  # null: `a` lies above

    def verdict(self, low: float, high: float) -> str:
        """held | not held | not decided, by the interval of a − b, more being better."""
        bound = -(self.margin or 0.0)
        if low > bound or (self.margin and low == bound):
            return "held"
        return "not held" if high < bound else "not decided"


@dataclass
class Study:
    """A study as its file says it."""

    question: str
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)]
    arms: dict[str, Any]  # name → Arm
    name: str = ""  # of the experiment; empty: study-FILE
    overrides: list[str] = field(default_factory=list)  # of every arm
    choice: Choice | None = None
    tuning: Tuning | None = None
    claims: list[Claim] = field(default_factory=list)
    gains: list[list[str]] = field(default_factory=list)  # pairs of arms that are set side by side
    order_by: str = ""  # a metric by which a page lists the arms, the greatest first; else as here
    threats: list[str] = field(default_factory=list)  # to the validity of what comes out
    left_out: dict[str, str] = field(default_factory=dict)  # what is not in it → why


def read(name: str) -> Study:
    """The study of that name beside this file, or of a YAML file of one's own. Raises UserError."""
    file = Path(name) if name.endswith((".yaml", ".yml")) else HERE / f"{name}.yaml"
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        there = ", ".join(sorted(path.stem for path in HERE.glob("*.yaml")))
        raise UserError(
            f"study={name}: {error.strerror}; it is one of {there}, or FILE.yaml"
        ) from error
    except yaml.YAMLError as error:
        raise UserError(f"study={name}: no YAML ({' '.join(str(error).split())})") from error
    try:
        study = parse_values(Study, values if isinstance(values, dict) else {})
        arms = {str(arm): parse_values(Arm, held or {}, f"arms.{arm}") for arm, held in study.arms.items()}
    except ValueError as error:
        raise UserError(f"study={name}: {error}") from error
    _check_parents(name, arms, study.choice)
    for claim in study.claims:
        if missing := [arm for arm in (claim.a, claim.b) if arm not in arms]:
            raise UserError(f"study={name}: the claim {claim.says!r} names {missing[0]}, no arm")
    return replace(study, arms=arms, name=study.name or f"study-{file.stem}")


def _check_parents(name: str, arms: dict[str, Arm], choice: Choice | None) -> None:
    for arm, held in arms.items():
        if held.rollouts_of and held.replay_of:
            raise UserError(
                f"study={name}: arms.{arm} has rollouts_of and replay_of; frozen batches are taken "
                "as they are: leave one of them out"
            )
        for key, parent in held.parents.items():
            given = f"study={name}: arms.{arm}.{key}={parent}"
            if parent not in arms or arms[parent].parents:
                near = did_you_mean(parent, list(arms))
                raise UserError(
                    f"{given}; {near}it names an arm of the study that itself begins with the "
                    "model's weights, on rollouts of its own"
                )
            if key != "weights_of" and "train.keep_samples=true" not in arms[parent].overrides:
                raise UserError(f"{given}: give arms.{parent} the override train.keep_samples=true")
            if choice:
                raise UserError(
                    f"{given} with a choice: short runs would begin elsewhere; leave one of them "
                    "out"
                )
