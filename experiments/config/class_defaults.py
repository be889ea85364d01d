"""Defaults of the configuration's dataclasses, as the base onto which Hydra composes `conf/`.

A default is written once, in its dataclass: a YAML file states only what differs from it, and every
key can be overridden on the command line without a `+`. `conf/config.yaml` names the entries
registered here: `run`, and one for each choice of `algo`, `engine` and `runtime`.
`envs.tasks.class_defaults` registers those of `task`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from envs.import_by_name import load_function
from envs.judge.judge import JudgeConfig
from envs.sandbox import SandboxConfig
from envs.tasks.class_defaults import register_task_defaults, task_defaults
from experiments.config.schema import (
    EngineConfig,
    EvalConfig,
    LoggerConfig,
    ModelConfig,
    ReplayConfig,
    RunConfig,
    RuntimeConfig,
    TrainConfig,
)

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUP = "hydra/class_defaults"  # Hydra's help does not list groups below hydra/
SECTIONS = {
    "model": ModelConfig,
    "train": TrainConfig,
    "replay": ReplayConfig,
    "eval": EvalConfig,
    "judge": JudgeConfig,
    "sandbox": SandboxConfig,
    "logger": LoggerConfig,
}
CHOICES = {  # the options of these sections depend on the choice
    "engine": (EngineConfig, ("auto", "hf", "vllm")),
    "runtime": (RuntimeConfig, ("ray", "sync", "torchrun")),
}


class _UncopiedGroup(dict[str, Any]):
    """A group of the config store that is not deep-copied.

    Hydra copies the whole store for each group that `--help` lists, but also copies a node before
    it uses it.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> _UncopiedGroup:
        return self


@cache
def register() -> None:
    """Store the defaults where Hydra finds them; once in a process."""
    store = ConfigStore.instance()
    parent, _, name = GROUP.partition("/")
    siblings = store.repo.setdefault(parent, {})
    siblings[name] = _UncopiedGroup(siblings.get(name, {}))
    store.store("run", _run_defaults(), group=GROUP)
    register_task_defaults()
    for group in ("algo", *CHOICES):
        for name, defaults in defaults_by_choice(group):
            store.store(name, defaults, group=f"{GROUP}/{group}")


def defaults_by_choice(group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The choices of `group`, each with its options and their defaults."""
    if group == "algo":
        yield from _algorithm_defaults()
    elif group == "task":
        yield from task_defaults()
    elif group in CHOICES:
        section, names = CHOICES[group]
        for name in names:
            yield name, _defaults_under(section, name)


def _run_defaults() -> dict[str, Any]:
    top = {field.name: field.default for field in fields(RunConfig)}
    scalars = {key: top[key] for key in ("name", "seed", "steps", "output_dir", "tuned")}
    run: dict[str, Any] = scalars | {key: asdict(section()) for key, section in SECTIONS.items()}
    del run["model"]["path"]  # each file of conf/model gives its own, local.yaml demands one
    return run


def _defaults_under(section: type, choice: str) -> dict[str, Any]:
    """The options of `section` that mean something under `choice`."""
    limits = {field.name: field.metadata.get("choices", (choice,)) for field in fields(section)}
    return {key: value for key, value in asdict(section()).items() if choice in limits[key]}


def _algorithm_defaults() -> Iterator[tuple[str, dict[str, Any]]]:
    """The options of each algorithm's core. A core that cannot be loaded is left to `parse`."""
    for file in sorted((CONF / "algo").glob("*.yaml")):
        core = re.search(r"^core: *(\S+)", file.read_text(), re.MULTILINE)
        if core is None:
            continue
        with suppress(ValueError):
            options = getattr(load_function(core.group(1), "algo.core"), "Config", None)
            if isinstance(options, type) and is_dataclass(options):
                yield file.stem, asdict(options())
