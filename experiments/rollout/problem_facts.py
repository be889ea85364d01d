"""Facts of a run's problems for run.json: what cheap programs earn, how often the judge errs.

Nothing is judged here. Cheap programs' outputs are compared when a data set is prepared, and error
rates are those that `python -m envs.validate` found on the same problems with the same judge.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from envs.judge.checker_programs.testlib import CompilerMissing, find_toolchain
from envs.judge.judge import JudgeConfig
from envs.problem import Problem
from envs.tasks.config import FieldsConfig, TaskConfig
from envs.tasks.selection import checker_languages, content_digests, strengths
from envs.tasks.task import SPLITS
from envs.validation.judge_errors import known_rates
from envs.validation.problem_quality import cheap_earnings
from experiments.config.schema import RunConfig
from experiments.errors import UserError


def problem_facts(
    config: RunConfig, problems: Mapping[str, Sequence[Problem]], judge_version: str, sandbox: str
) -> dict[str, Any]:
    """Return `cheap_programs` and `judge_errors` of the problems by use ("train", "eval").

    Nothing for a task whose responses are no programs.
    """
    if config.task.environment is not None:
        return {}
    rates = {
        use: known_rates(content_digests(some), judge_version) for use, some in problems.items()
    }
    errors: dict[str, Any] = {use: measured.record() for use, measured in rates.items()}
    if not all(measured.measured for measured in rates.values()):
        errors["command"] = validation_command(config, sandbox)
    earnings = {use: cheap_earnings(strengths(some)) for use, some in problems.items()}
    return {"cheap_programs": earnings, "judge_errors": errors}


def checker_facts(
    config: RunConfig, problems: Mapping[str, Sequence[Problem]]
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the checker programs of the problems by use and language; nothing without one.

    Raises UserError if some of them cannot be compiled here.
    """
    counts = {use: dict(Counter(checker_languages(some))) for use, some in problems.items()}
    if any("testlib" in languages for languages in counts.values()):
        try:
            find_toolchain(config.judge.testlib).require()
        except CompilerMissing as error:
            raise UserError(str(error)) from error
    return {"checker_programs": counts} if any(counts.values()) else {}


def validation_command(config: RunConfig, sandbox: str) -> str:
    """Return the command that measures the judge's error rates on the run's problems."""
    arguments = [f"task={config.task.name}", *_task_arguments(config.task), f"sandbox={sandbox}"]
    defaults = asdict(JudgeConfig())
    arguments += [
        f"judge.{key}={_text(value)}"
        for key, value in asdict(config.judge).items()
        if value != defaults[key]
    ]
    return shlex.join(["python", "-m", "envs.validate", *arguments])


def _task_arguments(task: TaskConfig) -> list[str]:
    """Return the arguments that decide on problems and tests."""
    if task.make is not None:
        return [f"task.{split}_problems={getattr(task, f'{split}_problems')}" for split in SPLITS]
    keys = ("path", "max_tests", "max_test_bytes")
    arguments = [f"task.{key}={getattr(task, key)}" for key in keys]
    if task.fields != FieldsConfig():
        fields = asdict(task.fields).items()
        arguments += [f"task.fields.{key}={column}" for key, column in fields if column]
    return arguments


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
