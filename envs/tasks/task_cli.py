"""Arguments of the commands that need no model, show and validate: task, sandbox, judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal, TypeVar, cast

from omegaconf import OmegaConf

from envs.command_line import (
    CONF,
    choice_lines,
    parse_arguments,
    parse_values,
    print_help,
    quiet_when_unread,
    wants_help,
    yaml_lines,
)
from envs.composition import composed
from envs.judge.judge import JudgeConfig
from envs.tasks.config import TaskConfig

T = TypeVar("T")

SandboxKind = Literal["auto", "docker", "embedded"]


def parse_judge_arguments(
    schema: type[T], argv: Sequence[str], task_defaults: Sequence[str] = ()
) -> tuple[TaskConfig, T, JudgeConfig]:
    """Parse a command's arguments for its task, itself and the judge. Raises ValueError.

    `task_defaults` are arguments that stand before those of the command line. With --help among
    them: print the help and end the process.
    """
    task = [word for word in argv if _is_task_argument(word)]
    if wants_help(argv):
        with quiet_when_unread():
            print_help(schema)
            print(*_help_lines(task), sep="\n")
        raise SystemExit(0)
    judge = [word.removeprefix("judge.") for word in argv if word.startswith("judge.")]
    own = [word for word in argv if not (word.startswith("judge.") or _is_task_argument(word))]
    try:
        judge_config = parse_arguments(JudgeConfig, judge)
    except ValueError as error:
        raise ValueError(f"judge.KEY=VALUE: {error}") from error
    return task_config([*task_defaults, *task]), parse_arguments(schema, own), judge_config


def _help_lines(task: Sequence[str]) -> Iterator[str]:
    """The tasks, the keys of the chosen one, and those of the judge."""
    values = plain_task(task)
    yield from ("", "task=NAME, a file of conf/task/:", *choice_lines(CONF / "task"))
    yield from ("", f"Keys of task={values['name']}:")
    yield from yaml_lines(CONF / "task" / f"{values['name']}.yaml", values, "task.")
    yield from ("", "Keys of the judge:")
    yield from yaml_lines(CONF / "judge.yaml", asdict(JudgeConfig()), "judge.")


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
