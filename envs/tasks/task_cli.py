"""The task's part of the configuration, for commands that need no model: show, prepare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from envs.config_parsing import parse_arguments, parse_values
from envs.tasks.config import TaskConfig

T = TypeVar("T")
CONF = Path(__file__).resolve().parents[2] / "conf"


def parse_task_arguments(schema: type[T], given: Sequence[str]) -> tuple[TaskConfig, T]:
    """A command's task arguments, and its own as a `schema`. Raises ValueError, one line."""
    of_task = [argument for argument in given if _is_of_task(argument)]
    own = [argument for argument in given if not _is_of_task(argument)]
    options = parse_arguments(schema, own, also=("task", "task.KEY"))
    return task_config(of_task), options


def _is_of_task(argument: str) -> bool:
    return argument.lstrip("+").partition("=")[0].split(".")[0] == "task" and "=" in argument


def task_config(overrides: Sequence[str]) -> TaskConfig:
    """What `python run.py` with the same task arguments would take. Raises ValueError, one line."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for override in overrides:
        if not _is_of_task(override):
            raise ValueError(f"{override!r}: write task=NAME or task.KEY=VALUE")
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            composed = hydra.compose("config", overrides=list(overrides)).task
        return parse_values(TaskConfig, OmegaConf.to_container(composed, resolve=True), "task")
    except (HydraException, OmegaConfBaseException) as error:
        if "Could not override" in str(error):
            key, known = str(error).split("'")[1], [field.name for field in fields(TaskConfig)]
            if key.removeprefix("task.") in known:
                raise ValueError(f"{key} means nothing to this task, see conf/task/") from error
            raise ValueError(f"unknown key {key!r}; keys of task: {', '.join(known)}") from error
        raise ValueError(" ".join(str(error).split("Config search path")[0].split())) from error
