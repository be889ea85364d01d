"""Facts of a run's problems, for run.json and the screen.

Nothing is judged here. Cheap programs' outputs are compared when a data set is prepared, and error
rates are those that `python -m envs.validate` found on the same problems with the same judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from envs.judge.testlib import CompilerMissing, find_toolchain
from envs.problem import Problem
from envs.tasks.stored import checker_languages, content_digests, strengths
from envs.tasks.strength import cheap_earnings, earnings_line
from envs.tasks.task import Task
from envs.validate import known_rates
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.rollout.prompts import Prompts


def problem_facts(
    config: RunConfig, problems: Mapping[str, Sequence[Problem]], judge_version: str
) -> dict[str, Any]:
    """Return `cheap_programs`, `judge_errors` and `checker_programs` by use ("train", "eval").

    Nothing for a task whose responses are no programs. Raises UserError if checker programs cannot
    be compiled here.
    """
    if config.task.environment is not None:
        return {}
    languages = {use: dict(Counter(checker_languages(some))) for use, some in problems.items()}
    if any("testlib" in found for found in languages.values()):
        try:
            find_toolchain(config.judge.testlib).require()
        except CompilerMissing as error:
            raise UserError(str(error)) from error
    digests = {use: content_digests(some) for use, some in problems.items()}
    return {
        "cheap_programs": {use: cheap_earnings(strengths(some)) for use, some in problems.items()},
        "judge_errors": {use: known_rates(some, judge_version) for use, some in digests.items()},
    } | ({"checker_programs": languages} if any(languages.values()) else {})


def problem_line(task: Task, train: int, evaluated: int, facts: dict[str, Any]) -> str:
    """Return a line on the problems: their numbers, those left out and why, cheap programs."""
    text = f"{train} for training, {evaluated} for evaluation"
    if task.rows_read:
        text += f", of {task.rows_read} rows"
    if task.left_out:
        text += f"; left out: {left_out_line(task)}"
    earnings = facts.get("cheap_programs", {}).get("train")
    if earnings and (line := earnings_line(earnings)):
        text += f"; {line}"
    return text


def left_out_line(task: Task) -> str:
    """Return the reasons with their counts, and with the first row of those that rows gave."""
    first = task.first_left_out
    return ", ".join(
        f"{reason} {count}" + (f" (first: {first[reason]})" if reason in first else "")
        for reason, count in task.left_out.most_common()
    )


def empty_split(split: str, prompts: Prompts, task: Task, config: RunConfig) -> str:
    """Say that a split is empty: how many problems others have, and what was left out."""
    message = f"task={config.task.name}: the {split} split is empty"
    if len(prompts.problems):
        limit = config.task.max_prompt_tokens
        return (
            f"{message}: all of its prompts are over task.max_prompt_tokens={limit}; the shortest "
            f"has {prompts.shortest} tokens"
        )
    counts = ", ".join(f"{name} {len(some)}" for name, some in task.splits().items())
    message += f" (problems by split: {counts}); add rows, or choose another eval.split"
    return message + (f"; left out: {left_out_line(task)}" if task.left_out else "")
