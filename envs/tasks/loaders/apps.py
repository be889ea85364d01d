"""APPS (codeparrot/apps; Hendrycks et al. 2021), whose rows share TACO's schema."""

from __future__ import annotations

from envs.problem import Problem
from envs.tasks.loaders import taco
from envs.tasks.loaders.field_parsers import Row, own_name


def problem(row: Row, name: str) -> Problem:
    """A problem from a row, named by its number in the data set. Raises SkipRow."""
    return taco.problem(row, own_name(name, row.get("problem_id")))
