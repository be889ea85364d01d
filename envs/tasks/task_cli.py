"""Task arguments of commands that need no model: show, prepare, validate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from envs.config_parsing import key_names, parse_arguments, parse_values
from envs.tasks.class_defaults import CONF, register_task_defaults
from envs.tasks.config import TaskConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def parse_task_arguments(schema: type[T], argv: Sequence[str]) -> tuple[TaskConfig, T]:
    """Parse a command's task arguments, and its own into `schema`. Raises ValueError."""
    task_arguments = [argument for argument in argv if _is_task_argument(argument)]
    others = [argument for argument in argv if not _is_task_argument(argument)]
    options = parse_arguments(schema, others, other_keys=("task", "task.KEY"))
    return task_config(task_arguments), options


def _is_task_argument(argument: str) -> bool:
    return argument.lstrip("+").partition("=")[0].split(".")[0] == "task" and "=" in argument


def task_config(overrides: Sequence[str]) -> TaskConfig:
    """Compose the task configuration as `python run.py` would. Raises ValueError in one line."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for override in overrides:
        if not _is_task_argument(override):
            raise ValueError(f"{override!r}: write task=NAME or task.KEY=VALUE")
    register_task_defaults()
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            composed = hydra.compose("config", overrides=list(overrides)).task
        values = cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))
        return parse_values(TaskConfig, values, "task")
    except (HydraException, OmegaConfBaseException) as error:
        if "Could not override" in str(error):
            key, keys = str(error).split("'")[1], list(key_names(TaskConfig).values())
            if key.removeprefix("task.") in keys:
                raise ValueError(f"{key} means nothing to this task, see conf/task/") from error
            raise ValueError(f"unknown key {key!r}; keys of task: {', '.join(keys)}") from error
        raise ValueError(" ".join(str(error).split("Config search path")[0].split())) from error
