"""TACO-verified (likaixin/TACO-verified): problems of TACO's training split, with solutions that
its author ran against the tests.

Read: the hub's listing of files, and public code that reads them (not the rows themselves). The
schema is TACO's, but `solutions` is a list, and `id` numbers the rows.
"""

from __future__ import annotations

from envs.problem import Problem
from envs.tasks.loaders import taco
from envs.tasks.parsers.field_parsers import Row, named_by_row


def problem(row: Row, name: str) -> Problem:
    """Convert a row, named by its id. Raises SkipRow."""
    return taco.problem(row, named_by_row(name, row.get("id")))
