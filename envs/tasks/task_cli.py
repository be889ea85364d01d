"""Arguments of the commands that need no model, show and validate: task, sandbox, judge."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from envs.command_line.command_help import (
    argument_lines,
    choice_lines,
    key_lines,
    print_help,
    wants_help,
)
from envs.command_line.config_parsing import did_you_mean, key_names, parse_arguments, parse_values
from envs.judge.judge import JudgeConfig
from envs.tasks.class_defaults import CONF, register_task_defaults
from envs.tasks.config import TaskConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


SandboxKind = Literal["auto", "docker", "embedded"]


def parse_judge_arguments(
    schema: type[T], argv: Sequence[str], task_defaults: Sequence[str] = ()
) -> tuple[TaskConfig, T, JudgeConfig]:
    """Parse a command's arguments for its task, itself and the judge. Raises ValueError.

    `task_defaults` are arguments that stand before those of the command line. With --help among
    them: print the help and end the process.
    """
    if wants_help(argv):
        print_help(schema, more=_help_lines(argv))
        raise SystemExit(0)
    judge = [word.removeprefix("judge.") for word in argv if word.startswith("judge.")]
    task = [*task_defaults, *(word for word in argv if _is_task_argument(word))]
    own = [word for word in argv if not (word.startswith("judge.") or _is_task_argument(word))]
    try:
        judge_config = parse_arguments(JudgeConfig, judge)
    except ValueError as error:
        raise ValueError(f"judge.KEY=VALUE: {error}") from error
    options = parse_arguments(schema, own, other_keys=("task", "task.KEY", "judge.KEY"))
    return task_config(task), options, judge_config


def _help_lines(argv: Sequence[str]) -> list[str]:
    """The tasks, the keys of the chosen one (of any task where none is), and those of the judge."""
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
        "",
        "Keys of the judge:",
        *argument_lines(JudgeConfig, "judge."),
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
