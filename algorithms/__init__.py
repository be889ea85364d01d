"""Pure losses and the small classes around them. This room knows tensors and no problem.

An algorithm is a file of `conf/algo`: it names its core, a class of this folder that several names
may share, and that class's options as published. `python -m algorithms` lists them.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algorithms.base import Algorithm

CONF = Path(__file__).resolve().parents[1] / "conf" / "algo"


def names() -> list[str]:
    """The choices of `algo=`."""
    return sorted(file.stem for file in CONF.glob("*.yaml"))


def defaults(name: str) -> dict[str, Any]:
    """What `conf/algo/<name>.yaml` says: name, core, and every option of the core."""
    from omegaconf import OmegaConf

    if name not in names():
        raise ValueError(f"unknown algorithm {name!r}; there are: {', '.join(names())}")
    return OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"))


def load(name: str) -> type[Algorithm]:
    """The core of `name`, a class; the dataclass of its options is its attribute `Config`."""
    module, _, core = defaults(name)["core"].rpartition(".")
    return getattr(importlib.import_module(module), core)


def make(name: str, reward_high: float = 1.0, **options: Any) -> Algorithm:
    """`name` with its published options, except those given."""
    core = load(name)
    return core(core.Config(**defaults(name) | options), reward_high)
