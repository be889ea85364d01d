"""Pure losses and the small classes around them. This room knows tensors and no problem."""

from __future__ import annotations

import importlib
import pkgutil

SHARED = {"base", "lazy_torch", "tensors"}


def names() -> list[str]:
    """The algorithms there are: every file of this folder that is not shared by all."""
    return sorted({module.name for module in pkgutil.iter_modules(__path__)} - SHARED)


def load(name: str) -> type:
    """The algorithm class of `algorithms/<name>.py`; its options are its attribute `Config`."""
    if name not in names():
        raise ValueError(f"unknown algorithm {name!r}; there are: {', '.join(names())}")
    return importlib.import_module(f"algorithms.{name}").ALGORITHM
