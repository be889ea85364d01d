"""Defaults of TaskConfig, as the base onto which Hydra composes the files of conf/task.

A default is written once, in its dataclass; a file has only differing values. The keys of a task
depend on its kind: generated problems, rows of a known data set, or your own rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from envs.command_line.config_parsing import key_names
from envs.tasks.config import TaskConfig

CONF = Path(__file__).resolve().parents[2] / "conf"
COMMON_KEYS = (
    "prompt",
    "turns",
    "feedback",
    "max_observation_tokens",
    "feedback_prompt",
    "train_problems",
    "tune_problems",
    "choose_problems",
    "test_problems",
    "few_shot",
    "chat",
    "max_prompt_tokens",
    "max_response_tokens",
    "reward",
)
ROW_KEYS = (
    "split_of",
    "test_path",
    "environment",
    "filter",
    "difficulty",
    "min_rating",
    "max_rating",
    "date_from",
    "date_to",
    "checkers",
    "quality",
    "min_hidden_tests",
    "max_tests",
    "max_test_bytes",
    "decontaminate",
)
JOINED_KEYS = ("min_hidden_tests", "decontaminate")
OWN_ROW_KEYS = ("files", "fields")


def task_defaults() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each choice of `task` with the defaults of the keys that it has.

    The default of `name` is the file's name.
    """
    defaults = asdict(TaskConfig())
    names = key_names(TaskConfig)
    for file in sorted((CONF / "task").glob("*.yaml")):
        text = file.read_text()
        keys: tuple[str, ...] = COMMON_KEYS
        if re.search(r"^parts:", text, re.MULTILINE):
            keys += JOINED_KEYS
        elif not re.search(r"^make:", text, re.MULTILINE):
            keys += ROW_KEYS
        if re.search(r"^rows:", text, re.MULTILINE):
            keys += ("path",)
        if re.search(r"^rows: envs\.tasks\.loaders\.own\.", text, re.MULTILINE):
            keys += OWN_ROW_KEYS
        yield file.stem, {"name": file.stem} | {names[key]: defaults[key] for key in keys}


@cache
def register_task_defaults() -> None:
    """Store the defaults where conf/config.yaml names them; once in a process."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for name, defaults in task_defaults():
        store.store(name, defaults, group="hydra/class_defaults/task")
