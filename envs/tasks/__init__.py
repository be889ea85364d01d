"""Tasks: where problems come from, and how a model is prompted for a program.

Knows data sets, splits and prompts. Must not know tokens, sandboxes or how a response is judged.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from envs.command_line import load_function
from envs.tasks.prompts import PromptTemplate, with_few_shot
from envs.tasks.task import Task, TaskConfig

__all__ = ["Task", "TaskConfig", "open_task"]


def open_task(config: TaskConfig) -> Task:
    """Open the task that `config` describes. Raises ValueError or OSError naming the wrong key."""
    template = None
    if config.prompt:  # before the task is opened: its errors cost nothing
        from envs.tasks.dataset import data_sets, has_own_samples

        own = has_own_samples(data_sets(config))
        template = PromptTemplate(Path(config.prompt), "task.prompt", own=own)
    if [config.make is None, config.rows is None, not config.parts].count(False) != 1:
        raise ValueError(
            f"task={config.name}: conf/task/{config.name}.yaml must give one of rows, a function "
            "from a row to a problem, make, one from the configuration to a task, and parts, a "
            "list of data sets"
        )
    if config.make:
        task = load_function(config.make, "task.make")(config)
    else:
        from envs.tasks.dataset import open_dataset

        task = open_dataset(config)
    if template:
        content = f"{task.data_hash} {template.digest}"
        data_hash = hashlib.sha256(content.encode()).hexdigest()[:16]
        task = replace(task, prompt=template, prompt_digest=template.digest, data_hash=data_hash)
    return with_few_shot(task, config.few_shot) if config.few_shot else task
