"""Configurations as `python run.py` composes them."""

from experiments.config.composition import compose
from experiments.config.schema import RunConfig, parse


def config(*overrides: str) -> RunConfig:
    """What the command line with these overrides runs."""
    return parse(compose(overrides))
