"""Where metrics go besides the run folder: nowhere, or Weights & Biases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from experiments.config import RunConfig


class NoLogger:
    """logger=none."""

    def log(self, row: dict[str, Any], step: int) -> None:
        return

    def close(self) -> None:
        return


class WandbLogger:
    """logger=wandb: online where a key is set, else offline (`wandb sync` uploads it later)."""

    def __init__(self, config: RunConfig, folder: Path, settings: dict[str, Any]) -> None:
        import wandb

        keyed = os.environ.get("WANDB_API_KEY") or Path.home().joinpath(".netrc").exists()
        mode = os.environ.get("WANDB_MODE") or ("online" if keyed else "offline")
        self.run = wandb.init(
            project=config.logger.project,
            id=folder.name,  # a run that goes on stays one run
            resume="allow",
            name=folder.name,
            group=f"{config.name}/{config.algo.name}",
            dir=str(folder),
            mode=mode,
            config=settings,
            settings=wandb.Settings(silent=True),
        )

    def log(self, row: dict[str, Any], step: int) -> None:
        self.run.log(row, step=step)

    def close(self) -> None:
        self.run.finish()


Logger = NoLogger | WandbLogger


def open_logger(config: RunConfig, folder: Path, settings: dict[str, Any]) -> Logger:
    """The logger that the configuration names."""
    return WandbLogger(config, folder, settings) if config.logger.name == "wandb" else NoLogger()
