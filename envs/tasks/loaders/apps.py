"""APPS (codeparrot/apps; Hendrycks et al. 2021), in TACO's schema."""

from __future__ import annotations

from envs.problem import Problem
from envs.tasks.loaders import taco
from envs.tasks.parsers.field_parsers import Row, named_by_row


def problem(row: Row, name: str) -> Problem:
    """Convert a row, named by its problem_id. Raises SkipRow."""
    return taco.problem(row, named_by_row(name, row.get("problem_id")))
