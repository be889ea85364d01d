"""Configurations as `python run.py` composes them, and whole runs of them in this process."""

import copy
from functools import cache
from pathlib import Path

import pandas as pd

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


def finished(*overrides: str) -> Path:
    """Train, and return the folder of the finished run."""
    from experiments.trainer import train

    outcome = train(config(*overrides))
    assert outcome.status == "finished", outcome.error
    return outcome.folder


def table(folder: Path, name: str) -> pd.DataFrame:
    """A table of a run without what no two runs share: times and memory."""
    rows = pd.read_parquet(folder / f"{name}.parquet")
    timed = [c for c in rows if c.startswith(("time/", "memory/")) or c == "cpu_s"]
    return rows.drop(columns=timed)


def assert_same(one: Path, other: Path, *names: str) -> None:
    """These tables of two runs are equal to the bit."""
    for name in names:
        pd.testing.assert_frame_equal(table(one, name), table(other, name), check_exact=True)
