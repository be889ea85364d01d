"""Task arguments of commands that need no model: show, prepare, validate."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from envs.command_line.command_help import choice_lines, key_lines, print_help, wants_help
from envs.command_line.config_parsing import did_you_mean, key_names, parse_arguments, parse_values
from envs.tasks.class_defaults import CONF, register_task_defaults
from envs.tasks.config import TaskConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def parse_task_arguments(schema: type[T], argv: Sequence[str]) -> tuple[TaskConfig, T]:
    """Parse a command's task arguments, and its own into `schema`. Raises ValueError.

    With --help among them: print the help and end the process.
    """
    if wants_help(argv):
        print_task_help(schema, argv)
    task_arguments = [argument for argument in argv if _is_task_argument(argument)]
    others = [argument for argument in argv if not _is_task_argument(argument)]
    options = parse_arguments(schema, others, other_keys=("task", "task.KEY"))
    return task_config(task_arguments), options


def print_task_help(schema: type, argv: Sequence[str], more: Sequence[str] = ()) -> NoReturn:
    """Print a command's help, with the keys of tasks and `more`, and end the process."""
    print_help(schema, more=[*task_help(argv), *more])
    raise SystemExit(0)


def task_help(argv: Sequence[str]) -> list[str]:
    """The tasks, and the keys of the one that is chosen: of any task where none is."""
    chosen = [argument for argument in argv if _is_task_argument(argument)]
    values = dict(plain_task(chosen)) if chosen else None
    named = f"Keys of {' '.join(chosen)}:" if chosen else "Keys of a task (task=NAME: its values):"
    return [
        "",
        "task=NAME, a file of conf/task/:",
        *choice_lines(CONF / "task"),
        "",
        named,
        *key_lines(TaskConfig, "task.", values),
    ]


def _is_task_argument(argument: str) -> bool:
    return argument.lstrip("+").partition("=")[0].split(".")[0] == "task" and "=" in argument


def task_config(overrides: Sequence[str]) -> TaskConfig:
    """Compose the task configuration as `python run.py` would. Raises ValueError in one line."""
    return parse_values(TaskConfig, plain_task(overrides), "task")


def plain_task(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose the task configuration, unchecked. Raises ValueError in one line."""
    import hydra
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for override in overrides:
        if not _is_task_argument(override):
            raise ValueError(f"{override!r}: write task=NAME or task.KEY=VALUE")
    register_task_defaults()
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            composed = hydra.compose("config", overrides=list(overrides)).task
        return cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))
    except MissingConfigException as error:
        name, choices = (error.missing_cfg_file or "").rpartition("/")[2], error.options or ()
        near = did_you_mean(name, choices)
        raise ValueError(
            f"task={name}: no such choice; {near}task is one of {', '.join(choices)}"
        ) from error
    except (HydraException, OmegaConfBaseException) as error:
        if "Could not override" in str(error):
            raise ValueError(_unknown_key(str(error).split("'")[1])) from error
        raise ValueError(" ".join(str(error).split("Config search path")[0].split())) from error


def _unknown_key(key: str) -> str:
    """The message on a key that the task lacks: of the section in which it stands."""
    section, schema = "task", TaskConfig
    while True:
        hints, names = typing.get_type_hints(schema), key_names(schema)
        keys = {f"{section}.{name}": hints[field] for field, name in names.items()}
        if key in keys:
            return f"{key} means nothing to this task, see conf/task/"
        inner = next((name for name in keys if key.startswith(f"{name}.")), None)
        if inner is None or not is_dataclass(keys[inner]):
            break
        section, schema = inner, keys[inner]
    listed = ", ".join(names.values())
    return f"unknown key {key!r}; {did_you_mean(key, list(keys))}keys of {section}: {listed}"
