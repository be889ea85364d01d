"""MiniContests: generated contest problems, small enough for a nano model.

Knows how statements, tests and programs are generated. Must not know other data sets or models.
"""

from envs.tasks.mini.grids import GRIDS
from envs.tasks.mini.numbers import NUMBERS
from envs.tasks.mini.queries import QUERIES
from envs.tasks.mini.sequences import FOLD, PAIRS, SIMULATION
from envs.tasks.mini.strings import STRINGS

FAMILIES = (FOLD, PAIRS, STRINGS, NUMBERS, QUERIES, SIMULATION, GRIDS)
