"""Families of longer problems: five or six parts, programs with loops and conditions."""

from envs.tasks.mini.long.nested import CELLS, FACTORS, INTERVALS, WORDS
from envs.tasks.mini.long.sequences import BRANCHES, PRODUCTS, STAGES

LONG_FAMILIES = (STAGES, BRANCHES, PRODUCTS, CELLS, INTERVALS, FACTORS, WORDS)
