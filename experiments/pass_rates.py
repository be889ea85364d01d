"""A model's pass rate on each problem, as a table for task.quality: what it can learn from.

    python run.py task=mbpp model=smollm2_135m steps=0 eval.split=train eval.samples=8
    python -m experiments.pass_rates runs=FOLDER,FOLDER out=FILE.csv

The last evaluation of each run folder counts; folders of several splits or seeds are added up.
Responses without a verdict are not counted. `good` are problems with a pass rate above `low` and at
most `high`: by default all that were solved at least once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from algorithms.base import Share
from envs.problem import Verdict
from envs.tasks import open_task
from envs.tasks.stored import statement_hash
from experiments.config.composition import recorded_config
from experiments.errors import command


@dataclass
class Options:
    """The command line."""

    runs: str  # run folders, with commas
    out: Path  # the table, FILE.csv
    low: Share = 0.0  # good problems have a higher pass rate ...
    high: Share = 1.0  # ... and at most this one


def main(options: Options) -> None:
    """Write the table: a row for each problem, by name."""
    found = []
    for folder in map(Path, options.runs.split(",")):
        config = recorded_config(folder, f"runs={folder}")
        evals = pd.read_parquet(folder / "evals.parquet")
        evals = evals[(evals.step == evals.step.max()) & (evals.verdict != Verdict.INFRA_ERROR)]
        problems = getattr(open_task(config.task), config.eval.split)
        hashes = {p.name: statement_hash(p.statement) for p in problems}
        found.append(
            pd.DataFrame({"name": evals.problem, "accepted": evals.verdict == Verdict.ACCEPTED})
            .assign(statement=evals.problem.map(hashes), model=config.model.name)
            .dropna()
        )
    groups = pd.concat(found).groupby(["name", "statement"])
    table = groups.agg(samples=("accepted", "size"), accepted=("accepted", "sum"))
    table["models"] = groups["model"].agg(lambda names: " ".join(dict.fromkeys(names)))
    rate = table["accepted"] / table["samples"]
    table["good"] = (rate > options.low) & (rate <= options.high)
    table.reset_index().to_csv(options.out, index=False)
    solved, good = (table["accepted"] > 0).sum(), table["good"].sum()
    print(f"{len(table)} problems, {solved} solved at least once, {good} good: {options.out}")


if __name__ == "__main__":
    command(Options, main)
