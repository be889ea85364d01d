"""The families of MiniContests, one file each."""

from envs.tasks.mini_families.fold import FOLD
from envs.tasks.mini_families.grids import GRIDS
from envs.tasks.mini_families.numbers import NUMBERS
from envs.tasks.mini_families.pairs import PAIRS
from envs.tasks.mini_families.queries import QUERIES
from envs.tasks.mini_families.simulation import SIMULATION
from envs.tasks.mini_families.strings import STRINGS

FAMILIES = (FOLD, PAIRS, STRINGS, NUMBERS, QUERIES, SIMULATION, GRIDS)
