"""Parts of a configuration with the defaults of conf/, except for what is given."""

from dataclasses import is_dataclass, replace
from functools import cache

import algorithms
from algorithms.base import Options
from experiments.config.composition import config_of
from experiments.config.schema import (
    EngineConfig,
    ModelConfig,
    ReplayConfig,
    RunConfig,
    TrainConfig,
)


def options_of(name: str, **given) -> Options:
    """Options of an algorithm, e.g. options_of("spo", beta=0.1)."""
    return algorithms.make(name, **given).config


def run_config(algo=None, **given) -> RunConfig:
    """A whole run with these sections or top-level keys; `algo`: options."""
    return replace(_default(), algo=algo, **given)


def train_config(**given) -> TrainConfig:
    return replace(_default().train, **given)


def replay_config(**given) -> ReplayConfig:
    return replace(_default().replay, **given)


def model_config(**given) -> ModelConfig:
    return replace(_default().model, **given)


def engine_config(**given) -> EngineConfig:
    return replace(_default().engine, **given)


def _default() -> RunConfig:
    """The default run; sections that a test may change in place are its own."""
    made = _composed()
    sections = {key: value for key, value in vars(made).items() if is_dataclass(value)}
    return replace(made, **{key: replace(value) for key, value in sections.items()})


@cache
def _composed() -> RunConfig:
    return config_of([])
