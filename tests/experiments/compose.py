"""Configurations as `python run.py` composes them."""

from pathlib import Path

import hydra

from experiments.config.schema import RunConfig, parse

CONF = Path(__file__).resolve().parents[2] / "conf"


def config(*overrides: str) -> RunConfig:
    """What the command line with these overrides runs."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return parse(hydra.compose("config", overrides=list(overrides)))
