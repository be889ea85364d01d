"""Facts of a run's problems, for run.json and the screen.

What cheap programs earn, how often the judge errs, what was left out, why a split is empty.

Nothing is judged here. Cheap programs' outputs are compared when a data set is prepared, and error
rates are those that `python -m envs.validate` found on the same problems with the same judge.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.judge.judge import JudgeConfig
from envs.judge.testlib import CompilerMissing, find_toolchain
from envs.problem import Problem
from envs.tasks.config import FieldsConfig, TaskConfig
from envs.tasks.dataset import IN_ANOTHER_SPLIT, TRAIN_ONLY
from envs.tasks.stored import checker_languages, content_digests, strengths
from envs.tasks.strength import cheap_earnings, earnings_line
from envs.tasks.task import SPLITS, Task
from envs.validate import known_rates
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.rollout.prompts import Prompts


def problem_facts(
    config: RunConfig, problems: Mapping[str, Sequence[Problem]], judge_version: str, sandbox: str
) -> dict[str, Any]:
    """Return `cheap_programs` and `judge_errors` of the problems by use ("train", "eval").

    Nothing for a task whose responses are no programs.
    """
    if config.task.environment is not None:
        return {}
    errors: dict[str, Any] = {
        use: known_rates(content_digests(some), judge_version) for use, some in problems.items()
    }
    if not all(rates["measured_problems"] for rates in errors.values()):
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


def task_counts(task: Task) -> dict[str, Any]:
    """Return how many rows were read, and how many problems were left out, by reason."""
    return {
        "rows_read": task.rows_read,
        "left_out": dict(task.left_out),
        "first_left_out": task.first_left_out,
        "decontaminated": task.decontaminated,
    }


def problem_line(task: Task, train: int, evaluated: int, facts: dict[str, Any]) -> str:
    """Return a line on the problems: their numbers, those left out and why, cheap programs."""
    text = f"{train} for training, {evaluated} for evaluation"
    if task.rows_read:
        text += f", of {task.rows_read} rows"
    if task.left_out:
        text += f"; left out: {_left_out(task)}"
    if task.left_out[IN_ANOTHER_SPLIT] > train > 0:
        text += "; most statements are alike across splits: task.decontaminate=false keeps them"
    if programs := facts.get("checker_programs"):
        count = sum(sum(languages.values()) for languages in programs.values())
        text += f"; {count} with a checker program"
    earnings = facts.get("cheap_programs", {}).get("train")
    if earnings and (line := earnings_line(earnings)):
        text += f"; {line}"
    return text


def _left_out(task: Task) -> str:
    """Return the reasons with their counts, and with the first row of those that rows gave."""
    first = task.first_left_out
    return ", ".join(
        f"{reason} {count}" + (f" (first: {first[reason]})" if reason in first else "")
        for reason, count in task.left_out.most_common()
    )


def empty_split(split: str, prompts: Prompts, task: Task, config: RunConfig) -> str:
    """Say why a split is empty, and which key changes that."""
    message = f"task={config.task.name}: the {split} split is empty"
    removed = task.left_out[IN_ANOTHER_SPLIT]
    chosen_by = _choosing_keys(task)
    if len(prompts.problems):
        limit = config.task.max_prompt_tokens
        message += (
            f": all of its prompts are over task.max_prompt_tokens={limit}; the shortest has "
            f"{prompts.shortest} tokens; raise the limit"
        )
    elif split == "train" and (weak := _of_train_only(task)):
        message += (
            f": the tests of {weak} problems are too weak for it; task.min_hidden_tests=0 keeps "
            "them, but programs that solve nothing earn their reward"
        )
    elif removed and split != "test" and not (chosen_by and split in task.split_shares):
        message += (
            f": {removed} problems are also in another split; task.decontaminate=false keeps "
            "them, but then scores are contaminated"
        )
    elif not task.train and (others := _evaluated_on(task)):
        message += f": the data set has no rows for it; with steps=0, {others} is evaluated"
    elif split in task.split_shares and any(map(len, task.splits().values())):
        message += f"{_no_share(split, task, config)}{f', or loosen {chosen_by}' * bool(chosen_by)}"
    return message + (f"; left out: {_left_out(task)}" if task.left_out else "")


def _no_share(split: str, task: Task, config: RunConfig) -> str:
    """Say that no problem fell into a split that a hash divides, and what fills it."""
    divided = task.split_shares
    shares = ", ".join(f"{100 * share:.0f} % {name}" for name, share in divided.items())
    counts = {name: len(problems) for name, problems in task.splits().items()}
    if "test" in divided:
        cure = "add rows, or give a folder with train*, valid*, choose* and test* files"
    elif not Path(config.task.path or "").expanduser().is_dir():
        cure = "add rows"
    elif "train" in divided:
        file = "valid*" if split == "tune" else "choose*"
        cure = f"add rows to the train* files, or a {file} file"
    else:
        cure = "add rows to the valid* files, or a choose* file, with which all of valid* is tune"
    others = [name for name in ("tune", "choose", "test") if split != "train" and counts[name]]
    return (
        f": a hash of each statement decides its split ({shares}), and none of "
        f"{sum(counts[name] for name in divided)} problems fell there; {cure}"
        + "".join(f", or set eval.split={name} ({counts[name]} problems)" for name in others)
    )


def _evaluated_on(task: Task) -> str:
    """Name the splits with problems, as values of eval.split; "" if a hash cut some off train."""
    counts = {name: len(problems) for name, problems in task.splits().items()}
    if task.split_shares.get("train") and any(counts[name] for name in task.split_shares):
        return ""
    return " or ".join(
        f"eval.split={name} ({counts[name]} problems)"
        for name in ("tune", "choose", "test")
        if counts[name]
    )


def _choosing_keys(task: Task) -> str:
    """Name the keys that left problems out of every split, such as task.difficulty."""
    reasons = [reason for reason in task.left_out if reason.startswith(("not of ", "not good by "))]
    return ", ".join(sorted(reason.split()[-1] for reason in reasons))


def _of_train_only(task: Task) -> int:
    counts = task.left_out.items()
    return sum(count for reason, count in counts if reason.endswith(TRAIN_ONLY))
