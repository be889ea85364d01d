"""MiniContests: generated contest problems, small enough for a nano model.

Knows how statements, tests and programs are generated. Must not know other data sets or models.
"""

from envs.tasks.mini.grids import GRIDS
from envs.tasks.mini.long import LONG_FAMILIES
from envs.tasks.mini.numbers import NUMBERS
from envs.tasks.mini.queries import QUERIES
from envs.tasks.mini.sequences import FOLD, PAIRS, SIMULATION
from envs.tasks.mini.splits import SPLITS, ProblemSet
from envs.tasks.mini.strings import STRINGS

FAMILIES = (FOLD, PAIRS, STRINGS, NUMBERS, QUERIES, SIMULATION, GRIDS)

# The streams of three splits keep the names of earlier versions, and so their problems. The earlier
# test split drew at most ten compositions of a family and tier.
MINI = ProblemSet(
    "mini",
    FAMILIES,
    streams={"train": "train", "tune": "validation", "choose": "test", "test": "test-2"},
    drawn_before=10,
)
MINI_LONG = ProblemSet("mini_long", LONG_FAMILIES, streams={split: split for split in SPLITS})
PROBLEM_SETS = {problem_set.name: problem_set for problem_set in (MINI, MINI_LONG)}
