"""The algorithms: losses as functions of tensors, and the small classes around them.

This room knows tensors (torch, imported at first use) and must not know problems, judging, models
or training. An algorithm is a file of `conf/algo`: it names its core, a class of this folder that
several algorithms may share, and its options, over those of the files in its defaults list.
`python -m algorithms` lists them all.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algorithms.base import Algorithm

__all__ = ["CONF", "defaults", "load", "make", "names"]

CONF = Path(__file__).resolve().parents[1] / "conf" / "algo"


def names() -> list[str]:
    """The choices of `algo=`."""
    return sorted(file.stem for file in CONF.glob("[!_]*.yaml"))


def load(name: str) -> type[Algorithm]:
    """The core of `name`, a class; its attribute `Config` is the dataclass of its options.

    Raises ValueError in one line if there is no such name, or its file names no such class.
    """
    given = str(defaults(name).get("core", ""))
    where = f"conf/algo/{name}.yaml: core={given}"
    module_name, _, class_name = given.rpartition(".")
    if not module_name:
        raise ValueError(f"{where}: write package.module.Class")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a new module may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{where}: {module_name} cannot be imported: {reason}") from error
    cores = {n: c for n, c in vars(module).items() if isinstance(c, type) and hasattr(c, "Config")}
    if class_name not in cores:
        own = [n for n, core in cores.items() if core.__module__ == module_name]
        choices = ", ".join(own) or "none"
        raise ValueError(f"{where}: {module_name} has no algorithm {class_name}; it has {choices}")
    return cores[class_name]


def defaults(name: str) -> dict[str, Any]:
    """All options of `name`, its name and core included."""
    if name not in names():
        raise ValueError(f"unknown algorithm {name!r}; there are: {', '.join(names())}")
    return _values(name)


def make(name: str, reward_high: float = 1.0, **options: Any) -> Algorithm:
    """The algorithm `name` with its default options, except those given."""
    core = load(name)
    return core(core.Config(**defaults(name) | options), reward_high)


def _values(name: str) -> dict[str, Any]:
    """The values of `conf/algo/<name>.yaml` over those of the files in its defaults list."""
    from omegaconf import OmegaConf

    own: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"))
    bases = [base for base in own.pop("defaults", []) if base != "_self_"]
    return {key: value for base in bases for key, value in _values(base).items()} | own
