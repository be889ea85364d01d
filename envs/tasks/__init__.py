"""Tasks: where problems come from, and how a model is asked for a program."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from envs.import_by_name import load_function
from envs.tasks.config import TaskConfig
from envs.tasks.task import Task


def open_task(config: TaskConfig) -> Task:
    """The task that `config` names; ValueError or OSError says which key is wrong."""
    prompt = None
    if config.prompt:
        from envs.tasks.prompts import Prompt

        prompt = Prompt(Path(config.prompt), "task.prompt")  # first, since its faults cost nothing
    task = _open(config)
    if prompt:
        known = hashlib.sha256(f"{task.data_hash} {prompt.digest}".encode()).hexdigest()[:16]
        task = replace(task, prompt=prompt, prompt_digest=prompt.digest, data_hash=known)
    if not config.few_shot:
        return task
    from envs.tasks.prompts import with_few_shot

    return with_few_shot(task, config.few_shot)


def _open(config: TaskConfig) -> Task:
    if (config.make is None) == (config.rows is None):
        raise ValueError(
            f"task={config.name}: conf/task/{config.name}.yaml must give either rows, a function "
            "from a row to a problem, or make, one from the configuration to a task"
        )
    if config.make:
        return load_function(config.make, "task.make")(config)
    from envs.tasks.dataset_task import open_dataset

    return open_dataset(config)
