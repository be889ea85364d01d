"""Arguments of commands that judge programs: validate, judge_program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal, TypeVar

from envs.command_line import CONF, parse_arguments, wants_help, yaml_lines
from envs.judge.judge import JudgeConfig
from envs.tasks.config import TaskConfig
from envs.tasks.task_cli import parse_task_arguments, print_task_help

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

SandboxKind = Literal["auto", "docker", "embedded"]


def parse_judge_arguments(
    schema: type[T],
    argv: Sequence[str],
    task_defaults: Sequence[str] = (),
    judge_defaults: Sequence[str] = (),
) -> tuple[TaskConfig, T, JudgeConfig]:
    """Parse a command's arguments for its task, itself and the judge. Raises ValueError.

    The defaults are arguments that stand before those of the command line. With --help among them:
    print the help and end the process.
    """
    if wants_help(argv):
        judge_keys = yaml_lines(CONF / "judge.yaml", asdict(JudgeConfig()), "judge.")
        print_task_help(schema, argv, ["", "Keys of the judge:", *judge_keys])
    judge_arguments = [word.removeprefix("judge.") for word in argv if word.startswith("judge.")]
    others = [word for word in argv if not word.startswith("judge.")]
    try:
        judge = parse_arguments(JudgeConfig, [*judge_defaults, *judge_arguments])
    except ValueError as error:
        raise ValueError(f"judge.KEY=VALUE: {error}") from error
    task, options = parse_task_arguments(schema, [*task_defaults, *others])
    if task.environment is not None:
        raise ValueError(f"task.environment={task.environment}: its responses are no programs")
    return task, options, judge
