"""The families of MiniContests, one file each."""

from envs.tasks.mini.fold import FOLD
from envs.tasks.mini.grids import GRIDS
from envs.tasks.mini.numbers import NUMBERS
from envs.tasks.mini.pairs import PAIRS
from envs.tasks.mini.queries import QUERIES
from envs.tasks.mini.simulation import SIMULATION
from envs.tasks.mini.strings import STRINGS

FAMILIES = (FOLD, PAIRS, STRINGS, NUMBERS, QUERIES, SIMULATION, GRIDS)
