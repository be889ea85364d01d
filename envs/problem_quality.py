"""How far each problem of a data set can be trusted, from the verdicts on its own programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from envs.problem import Judgement, Problem, Verdict
from envs.tasks.storage.arrow_schema import statement_hash

SUFFIXES = (".parquet", ".csv")


@dataclass
class Quality:
    """One problem. Good: at least one right program, all of them accepted, no wrong one accepted.

    `statement` tells the problem apart from others however many of its tests a task keeps.
    """

    name: str
    statement: str
    checker: str
    needs_checker: bool
    tests: int
    right: int = 0
    right_accepted: int = 0
    wrong: int = 0
    wrong_accepted: int = 0
    infra_errors: int = 0
    cpu_s: float = 0.0

    @property
    def good(self) -> bool:
        return (
            0 < self.right == self.right_accepted
            and not self.wrong_accepted
            and not self.infra_errors
            and not self.needs_checker
        )


class ProblemQualities:
    """The problems that were judged, in the order of their first verdict."""

    def __init__(self) -> None:
        self.rows: dict[str, Quality] = {}

    def add(self, problem: Problem, right: bool, marked: bool, said: Judgement) -> None:
        """Count one program."""
        row = self.rows.setdefault(
            problem.name,
            Quality(
                name=problem.name,
                statement=statement_hash(problem.statement),
                checker=problem.checker,
                needs_checker=marked,
                tests=len(problem.tests),
            ),
        )
        accepted = said.verdict is Verdict.ACCEPTED
        row.right += right
        row.right_accepted += right and accepted
        row.wrong += not right
        row.wrong_accepted += not right and accepted
        row.infra_errors += said.verdict is Verdict.INFRA_ERROR
        row.cpu_s += said.cpu_s

    def write(self, file: Path) -> None:
        """A table of kind .parquet or .csv, for task.quality. Raises OSError."""
        import pandas as pd

        rows = [asdict(row) | {"good": row.good} for row in self.rows.values()]
        columns = [*Quality.__dataclass_fields__, "good"]
        table = pd.DataFrame(rows, columns=columns)
        if file.suffix == ".csv":
            table.to_csv(file, index=False)
        else:
            table.to_parquet(file, index=False)
