"""The values that tuning looks through: one file for each algorithm, in conf/algo/_search/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from envs.config_parsing import parse_values
from experiments.config.composition import CONF
from experiments.errors import UserError

if TYPE_CHECKING:
    from optuna.trial import Trial

FOLDER = CONF / "algo" / "_search"


@dataclass
class Range:
    """Of one key: from low to high, or one of the choices."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # even in the logarithm
    choices: list[Any] | None = None

    def check(self, key: str) -> None:
        """Raises UserError where this says no range."""
        bounded = self.low is not None and self.high is not None and self.low < self.high
        if bounded == bool(self.choices) or (self.log and (not bounded or self.low <= 0)):
            raise UserError(
                f"{key}: give low and high, low below high (and above 0 with log), or choices"
            )


def read(algo: str) -> dict[str, Range]:
    """key → its range, of an algorithm or, where it has no file, of all. Raises UserError."""
    file = FOLDER / f"{algo}.yaml"
    file = file if file.is_file() else FOLDER / "_default.yaml"
    space = {}
    for key, values in yaml.safe_load(file.read_text()).items():
        try:
            space[key] = parse_values(Range, values, key)
        except ValueError as error:
            raise UserError(f"{file.name}: {error}") from error
        space[key].check(f"{file.name}: {key}")
    return space


def suggest(trial: Trial, space: dict[str, Range]) -> list[str]:
    """The trial's values as overrides; those that it has already stay what they are."""
    values = {
        key: trial.suggest_categorical(key, one.choices)
        if one.choices
        else trial.suggest_float(key, one.low, one.high, log=one.log)
        for key, one in space.items()
    }
    return [f"{key}={_written(value)}" for key, value in values.items()]


def _written(value: Any) -> str:
    """A number in four digits: what is run is what the table and the experiment say."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
