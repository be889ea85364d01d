"""How the rows of one data set become problems: the function that `task.rows` names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from envs.import_by_name import code_digest, load
from envs.problem import Problem
from envs.tasks.config import FieldsConfig
from envs.tasks.loaders import custom_dataset
from envs.tasks.loaders.field_parsers import Row


@dataclass(frozen=True)
class Converter:
    """`convert(row, name)` gives a problem, or raises SkipRow with the reason why not."""

    convert: Callable[[Row, str], Problem]
    prefix: str  # of the problems' names: the module's, e.g. "taco"
    identity: str  # another string wherever a row may become another problem
    fields: FieldsConfig | None = None  # what the function was told of the columns

    def check(self, rows: Iterable[Row | None], label: str) -> None:
        """Raises ValueError where the configuration names a column that none of `rows` has."""
        if self.fields is not None:
            custom_dataset.check_columns(self.fields, rows, label)


def converter(name: str, fields: FieldsConfig, key: str) -> Converter:
    """The converter of a dotted name; `key` is the configuration's name for it.

    A function with a third parameter `fields` is told task.fields. Its identity is that of its
    source and of all that it imports, so that nothing prepared by an older version is used.
    Raises ValueError, in one line.
    """
    function = load(name, key)
    code = code_digest(function.__module__, name.rpartition(".")[0])
    prefix = name.split(".")[-2]
    if "fields" in inspect.signature(function).parameters:
        custom_dataset.check_fields(fields)
        told = partial(function, fields=fields)
        return Converter(told, prefix, repr((name, code, fields)), fields)
    if fields != FieldsConfig():
        raise ValueError(f"task.fields is for task=own; {key}={name} knows its columns itself")
    return Converter(function, prefix, repr((name, code)))
