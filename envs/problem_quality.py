"""The quality of each problem of a data set, from the verdicts on its own programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from envs.problem import Judgement, Problem, Verdict
from envs.tasks.storage.arrow_schema import statement_hash

SUFFIXES = (".parquet", ".csv")


@dataclass
class Quality:
    """Counts of one problem's programs.

    Good: at least one right program, all right ones accepted, and no wrong one accepted.
    `statement` (a hash) identifies the problem independently of how many tests a task keeps.
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
    """Qualities of the judged problems, in the order of their first verdict."""

    def __init__(self) -> None:
        self.rows: dict[str, Quality] = {}

    def add(self, problem: Problem, right: bool, needs_checker: bool, judgement: Judgement) -> None:
        """Count one program. `right`: the data set says that it is correct."""
        row = self.rows.setdefault(
            problem.name,
            Quality(
                name=problem.name,
                statement=statement_hash(problem.statement),
                checker=problem.checker,
                needs_checker=needs_checker,
                tests=len(problem.tests),
            ),
        )
        accepted = judgement.verdict is Verdict.ACCEPTED
        row.right += right
        row.right_accepted += right and accepted
        row.wrong += not right
        row.wrong_accepted += not right and accepted
        row.infra_errors += judgement.verdict is Verdict.INFRA_ERROR
        row.cpu_s += judgement.cpu_s

    def write(self, file: Path) -> None:
        """Write the table for task.quality, as .parquet or .csv. Raises OSError."""
        import pandas as pd

        rows = [asdict(row) | {"good": row.good} for row in self.rows.values()]
        columns = [*Quality.__dataclass_fields__, "good"]
        table = pd.DataFrame(rows, columns=columns)
        if file.suffix == ".csv":
            table.to_csv(file, index=False)
        else:
            table.to_parquet(file, index=False)
