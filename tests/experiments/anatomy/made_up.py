"""A made-up anatomy of a few objectives."""

import math

import torch

from experiments.anatomy.measure import Anatomy, Stage

NAMES = ["raft", "rloo", "spo", "spo squared β=0.1"]
ANGLES = {"raft": 0.0, "spo": 0.02, "rloo": 1.0, "spo squared β=0.1": 1.0}


def anatomy():
    """Each objective at one angle everywhere; RLOO refuses what is stale."""
    stages = []
    for name in ("base", "half-trained", "collapsed"):
        rows, tables = [], {}
        for age in ("fresh", "stale"):
            situation = f"{name}, {age}"
            rows += [_row(situation, n, refused=(n, age) == ("rloo", "stale")) for n in NAMES]
            angles = torch.tensor([ANGLES[n] for n in NAMES], dtype=torch.float64)
            tables[situation] = torch.cos(angles[:, None] - angles)
            if age == "stale":
                tables[situation][1] = tables[situation][:, 1] = math.nan
        stages.append(Stage(name, 0, 0.5, math.nan, rows, tables, "abc"))
    return Anatomy(stages, "python run.py", 1.0)


def _row(situation, name, refused):
    row = {"situation": situation, "objective": name, "data": "own", "between batches": 0.5}
    if refused:
        return row
    failures = 0.0 if name in ("raft", "spo") else 0.4
    shares = {"accepted": 1 - failures, "rejected": failures, "others": 0.0}
    return row | {"norm 0": 1.0, "norm 1": 3.0, **shares, "all right, accepted": 0.25}
