"""Search spaces of tuning: the ranges in conf/algo/_search/, their edges, and how they widen.

A value stands at an edge of its range if it is within EDGE of the range's width of it, on the
range's own scale: logarithmic or linear. Choices have no edges. Neither has a weight of exactly
zero, where `zero` allows it: nothing lies beyond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import yaml

from envs.command_line import parse_values
from experiments.config.composition import CONF
from experiments.errors import UserError

if TYPE_CHECKING:
    from optuna.trial import Trial

FOLDER = CONF / "algo" / "_search"
EDGE = 0.1  # share of a range's width
WIDER = 1 / 3  # of a decade if the range is logarithmic, else of its width as it was first

Side = Literal["low", "high"]


@dataclass
class Range:
    """The values of one key: between low and high, or one of the choices."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # sample the logarithm uniformly
    zero: bool = False  # or exactly 0: as likely as the range, until trials tell them apart
    choices: list[Any] | None = None

    def check(self, key: str) -> None:
        """Raise UserError unless this is a range or a choice."""
        low, high = self.low, self.high
        bounded = low is not None and high is not None and low < high
        positive = low is not None and low > 0
        if bounded == bool(self.choices) or (self.log and not (bounded and positive)):
            raise UserError(
                f"{key}: give low and high, low below high (and above 0 with log), or choices"
            )
        if self.zero and not (bounded and positive):
            raise UserError(f"{key}: zero stands beside a range above 0")

    def position(self, value: Any) -> float | None:
        """Where the value stands: 0 at `low`, 1 at `high`; None for a choice and for zero."""
        if self.choices or (self.zero and value == 0):
            return None
        low, high, here = self._scaled(self.low), self._scaled(self.high), self._scaled(value)
        return (here - low) / (high - low)

    def edge(self, value: Any) -> Side | None:
        """The side at whose edge the value stands, if any."""
        position = self.position(value)
        if position is None or EDGE <= position <= 1 - EDGE:
            return None
        return "low" if position < EDGE else "high"

    def widened(self, side: Side, times: int = 1) -> Range:
        """The range, wider on one side. A linear range from 0 up does not go below 0."""
        assert self.low is not None and self.high is not None
        outwards = times * (1 if side == "high" else -1)
        if self.log:
            value = getattr(self, side) * 10 ** (WIDER * outwards)
        else:
            value = getattr(self, side) + WIDER * outwards * (self.high - self.low)
            value = max(value, 0.0) if self.low >= 0 else value
        value = float(f"{value:.4g}")
        return replace(self, low=value) if side == "low" else replace(self, high=value)

    def _scaled(self, value: float | None) -> float:
        assert value is not None
        return math.log10(value) if self.log else float(value)


Space = Mapping[str, Range]  # by key
Widened = Mapping[str, Mapping[Side, int]]  # by key and side: how often


def read_space(algo: str, search: str | None = None) -> dict[str, Range]:
    """The search space named `search`, else the algorithm's, else the default. Raises UserError."""
    file = FOLDER / f"{search or algo}.yaml"
    if not file.is_file():
        if search:
            names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
            raise UserError(f"search={search}: no such file; choose from {names}")
        file = FOLDER / "_default.yaml"
    space = {}
    for key, values in yaml.safe_load(file.read_text()).items():
        try:
            space[key] = parse_values(Range, values, key)
        except ValueError as error:
            raise UserError(f"{file.name}: {error}") from error
        space[key].check(f"{file.name}: {key}")
    return space


def check_same_size(spaces: Mapping[str, Space]) -> None:
    """Raise UserError unless all arms tune the same number of keys."""
    sizes = {arm: len(space) for arm, space in spaces.items()}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{arm} {size}" for arm, size in sizes.items())
        raise UserError(
            f"conf/algo/_search/: every arm must tune the same number of keys, not {counts}"
        )


def widen(space: Space, widened: Widened) -> dict[str, Range]:
    """The space, with each key that it has widened as often as `widened` says."""
    wider = dict(space)
    for key in space.keys() & widened.keys():
        # both sides from the first range, so that the order of widenings does not matter
        if times := widened[key].get("low", 0):
            wider[key] = replace(wider[key], low=space[key].widened("low", times).low)
        if times := widened[key].get("high", 0):
            wider[key] = replace(wider[key], high=space[key].widened("high", times).high)
    return wider


def suggest(trial: Trial, space: Space) -> list[str]:
    """The trial's values as overrides. Values that it already has stay."""
    return [f"{key}={_suggest(trial, key, values)}" for key, values in space.items()]


def _suggest(trial: Trial, key: str, values: Range) -> Any:
    if values.choices:
        return trial.suggest_categorical(key, values.choices)
    if values.zero and trial.suggest_categorical(_is_zero(key), [False, True]):
        return 0
    assert values.low is not None and values.high is not None
    # In four digits: the run has the value of the table and of the experiment file.
    return f"{trial.suggest_float(key, values.low, values.high, log=values.log):.4g}"


def values_of(params: Mapping[str, Any], space: Sequence[str] | Space) -> dict[str, Any]:
    """A stored trial's value of each key, in four digits; None where it has none yet."""
    values: dict[str, Any] = {}
    for key in space:
        value = 0.0 if params.get(_is_zero(key)) else params.get(key)
        values[key] = float(f"{value:.4g}") if isinstance(value, float) else value
    return values


def edges(values: Mapping[str, Any], space: Space) -> dict[str, Side]:
    """The keys whose value stands at an edge → the side."""
    sides = {key: space[key].edge(values[key]) for key in space}
    return {key: side for key, side in sides.items() if side is not None}


def distance(value: Any, values: Range) -> str:
    """How far a value is from the nearer edge, in words."""
    if values.choices:
        return "one of " + ", ".join(map(str, values.choices))
    position = values.position(value)
    if position is None:
        return "0 is allowed"
    side, share = ("low", position) if position <= 0.5 else ("high", 1 - position)
    return f"{share:.0%} of {values.low:g} to {values.high:g} from the {side} edge"


def _is_zero(key: str) -> str:
    return f"{key} is 0"
