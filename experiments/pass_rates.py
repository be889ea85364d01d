"""A model's pass rate on each problem, as a table for task.quality: what it can learn from.

    python run.py task=mbpp model=smollm2_135m steps=0 eval.split=train eval.samples=8
    python -m experiments.pass_rates runs=FOLDER,FOLDER out=FILE.csv

The last evaluation of each run folder counts; folders of several splits or seeds are added up.
Responses without a verdict are not counted. `good` are problems with a pass rate from `low` to
`high`: by default all that were solved at least once.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from omegaconf import OmegaConf
from pydantic import Field

from envs.command_line import parse_arguments, quiet_when_unread
from envs.problem import Verdict
from envs.tasks import open_task
from envs.tasks.stored import statement_hash
from experiments.config.resume import recorded_values
from experiments.config.schema import parse
from experiments.errors import UserError

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass
class Arguments:
    """The command line."""

    runs: str  # run folders, with commas
    out: Path  # the table, FILE.csv
    low: Share = 0.0  # good problems have a higher pass rate ...
    high: Share = 1.0  # ... and at most this one


@dataclass
class PassRate:
    """One problem's responses and how many were accepted."""

    name: str
    statement: str  # a hash, by which task.quality finds the problem
    samples: int = 0
    accepted: int = 0
    models: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.accepted / self.samples if self.samples else 0.0


def pass_rates(folders: list[Path]) -> list[PassRate]:
    """Add up the last evaluations of run folders; ordered by name. Raises UserError."""
    import pandas as pd

    rates: dict[str, PassRate] = {}
    for folder in folders:
        config = parse(OmegaConf.create(recorded_values(folder, f"runs={folder}")))
        evals = pd.read_parquet(folder / "evals.parquet")
        evals = evals[(evals.step == evals.step.max()) & (evals.verdict != Verdict.INFRA_ERROR)]
        task = open_task(config.task)
        hashes = {p.name: statement_hash(p.statement) for p in getattr(task, config.eval.split)}
        accepted = evals.verdict == Verdict.ACCEPTED
        for name, group in accepted.groupby(evals.problem):
            if str(name) not in hashes:
                raise UserError(
                    f"runs={folder}: its problem {name} is not in task={config.task.name} now; "
                    "evaluate the model again"
                )
            rate = rates.setdefault(str(name), PassRate(str(name), hashes[str(name)]))
            rate.samples += len(group)
            rate.accepted += int(group.sum())
            if config.model.name not in rate.models:
                rate.models.append(config.model.name)
    return sorted(rates.values(), key=lambda rate: rate.name)


def write(rates: list[PassRate], out: Path, low: float, high: float) -> int:
    """Write the table; return the number of good problems."""
    good = [low < rate.rate <= high for rate in rates]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("name", "statement", "samples", "accepted", "models", "good"))
        for rate, is_good in zip(rates, good, strict=True):
            row = asdict(rate) | {"models": " ".join(rate.models)}
            named = (row[key] for key in ("name", "statement", "samples", "accepted", "models"))
            writer.writerow((*named, str(is_good).lower()))
    return sum(good)


def main() -> None:
    try:
        arguments = parse_arguments(Arguments, sys.argv[1:])
        if arguments.out.suffix != ".csv":
            raise UserError(f"out={arguments.out}: it must end in .csv")
        folders = [Path(name) for name in arguments.runs.split(",")]
        for folder in folders:
            if not (folder / "evals.parquet").exists():
                raise UserError(f"runs={folder}: no run folder with an evaluation")
        rates = pass_rates(folders)
        good = write(rates, arguments.out, arguments.low, arguments.high)
    except (UserError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    solved = sum(rate.accepted > 0 for rate in rates)
    print(f"{len(rates)} problems, {solved} solved at least once, {good} good: {arguments.out}")


if __name__ == "__main__":
    with quiet_when_unread():
        main()
