"""Configurations as `python run.py` composes them."""

import copy
from functools import cache

from experiments.config.checks import parse
from experiments.config.composition import compose
from experiments.config.schema import RunConfig

OUTPUT_DIR = "output_dir="


def config(*overrides: str) -> RunConfig:
    """What the command line with these overrides runs.

    Hydra takes half a second, so what differs in its folder alone is composed once.
    """
    folders = [each.removeprefix(OUTPUT_DIR) for each in overrides if each.startswith(OUTPUT_DIR)]
    rest = tuple(each for each in overrides if not each.startswith(OUTPUT_DIR))
    made = copy.deepcopy(_composed(rest))
    if folders:
        made.output_dir = folders[-1]
    return made


@cache
def _composed(overrides: tuple[str, ...]) -> RunConfig:
    return parse(compose(overrides))
