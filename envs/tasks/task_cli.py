"""Task arguments of commands that need no model: show, prepare, validate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar, cast

from omegaconf import OmegaConf

from envs.command_line import (
    CONF,
    choice_lines,
    parse_arguments,
    parse_values,
    print_help,
    wants_help,
    yaml_lines,
)
from envs.composition import composed
from envs.tasks.config import TaskConfig

T = TypeVar("T")


def parse_task_arguments(schema: type[T], argv: Sequence[str]) -> tuple[TaskConfig, T]:
    """Parse a command's task arguments, and its own into `schema`. Raises ValueError.

    With --help among them: print the help and end the process.
    """
    if wants_help(argv):
        print_task_help(schema, argv)
    task_arguments = [argument for argument in argv if _is_task_argument(argument)]
    others = [argument for argument in argv if not _is_task_argument(argument)]
    options = parse_arguments(schema, others)
    return task_config(task_arguments), options


def print_task_help(
    schema: type | None, argv: Sequence[str], more: Iterable[str] = (), doc: str | None = None
) -> NoReturn:
    """Print a command's help, the tasks, the keys of the chosen one and `more`; end the process."""
    print_help(schema, doc)
    print("", "task=NAME, a file of conf/task/:", *choice_lines(CONF / "task"), sep="\n")
    chosen = [argument for argument in argv if _is_task_argument(argument)]
    values = plain_task(chosen)
    keys = yaml_lines(CONF / "task" / f"{values['name']}.yaml", values, "task.")
    print("", f"Keys of {' '.join(chosen) or 'task=mini'}:", *keys, *more, sep="\n")
    raise SystemExit(0)


def _is_task_argument(argument: str) -> bool:
    return argument.lstrip("+").partition("=")[0].split(".")[0] == "task" and "=" in argument


def task_config(overrides: Sequence[str]) -> TaskConfig:
    """Compose the task configuration as `python run.py` would. Raises ValueError in one line."""
    return parse_values(TaskConfig, plain_task(overrides), "task")


def plain_task(overrides: Sequence[str]) -> dict[str, Any]:
    """Compose the task configuration, unchecked. Raises ValueError in one line."""
    for override in overrides:
        if not _is_task_argument(override):
            raise ValueError(f"{override!r}: write task=NAME or task.KEY=VALUE")
    return cast(dict[str, Any], OmegaConf.to_container(composed(overrides).task, resolve=True))
