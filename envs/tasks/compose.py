"""The task's part of the configuration, for commands that need no model: show, prepare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from envs.tasks.config import TaskConfig
from envs.typed import typed

CONF = Path(__file__).resolve().parents[2] / "conf"


def task_config(overrides: Sequence[str]) -> TaskConfig:
    """What `python run.py` with the same task arguments would take. Raises ValueError, one line."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for override in overrides:
        if override.lstrip("+").partition("=")[0].split(".")[0] != "task" or "=" not in override:
            raise ValueError(f"{override!r}: write task=NAME or task.KEY=VALUE")
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            composed = hydra.compose("config", overrides=list(overrides)).task
        return typed(TaskConfig, OmegaConf.to_container(composed, resolve=True), "task")
    except (HydraException, OmegaConfBaseException) as error:
        if "Could not override" in str(error):
            key, known = str(error).split("'")[1], [field.name for field in fields(TaskConfig)]
            if key.removeprefix("task.") in known:
                raise ValueError(f"{key} means nothing to this task, see conf/task/") from error
            raise ValueError(f"unknown key {key!r}; keys of task: {', '.join(known)}") from error
        raise ValueError(" ".join(str(error).split("Config search path")[0].split())) from error
