"""The quality of each problem of a data set, from verdicts on its own and on cheap programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envs.cheap_programs import CHEAP_PROGRAMS
from envs.hidden_tests import Strength
from envs.problem import Judgement, Problem, Verdict
from envs.tasks.storage.arrow_schema import statement_hash
from envs.validation.judge_errors import ProgramCounts

SUFFIXES = (".parquet", ".csv")


@dataclass
class Quality:
    """Counts of one problem's programs.

    Good: at least one right program, all right ones accepted, and neither a wrong nor a cheap one
    accepted. `statement` (a hash) identifies the problem independently of how many tests a task
    keeps.
    """

    name: str
    statement: str
    checker: str
    needs_checker: bool
    tests: int
    hidden_tests: int
    distinct_outputs: int
    earned_by: str = ""  # the accepted cheap programs, separated by commas
    right: int = 0
    right_accepted: int = 0
    wrong: int = 0
    wrong_accepted: int = 0
    infra_errors: int = 0
    cpu_s: float = 0.0

    def count(self, right: bool, judgement: Judgement) -> None:
        """Count one of the problem's own programs. `right`: as the data set calls it."""
        accepted = judgement.verdict is Verdict.ACCEPTED
        self.right += right
        self.right_accepted += right and accepted
        self.wrong += not right
        self.wrong_accepted += not right and accepted
        self.infra_errors += judgement.verdict is Verdict.INFRA_ERROR
        self.cpu_s += judgement.cpu_s

    def count_cheap(self, name: str, judgement: Judgement) -> None:
        """Count one of CHEAP_PROGRAMS."""
        if judgement.verdict is Verdict.ACCEPTED:
            accepted = {name, *self.earned_by.split(", ")}
            self.earned_by = ", ".join(name for name in CHEAP_PROGRAMS if name in accepted)
        self.infra_errors += judgement.verdict is Verdict.INFRA_ERROR

    @property
    def program_counts(self) -> ProgramCounts:
        rejected = self.right - self.right_accepted
        return ProgramCounts(self.right, rejected, self.wrong, self.wrong_accepted)

    @property
    def good(self) -> bool:
        return (
            0 < self.right == self.right_accepted
            and not self.wrong_accepted
            and not self.earned_by
            and not self.infra_errors
            and not self.needs_checker
        )


class ProblemQualities:
    """Qualities of the judged problems, in the order of their first verdict."""

    def __init__(self) -> None:
        self.rows: dict[str, Quality] = {}
        self._digests: dict[str, str] = {}  # name → content digest

    def row(
        self, problem: Problem, digest: str, strength: Strength, needs_checker: bool
    ) -> Quality:
        """Return the problem's row, to be counted in; `digest` is of the problem's content."""
        self._digests[problem.name] = digest
        return self.rows.setdefault(
            problem.name,
            Quality(
                name=problem.name,
                statement=statement_hash(problem.statement),
                checker=problem.checker,
                needs_checker=needs_checker,
                tests=len(problem.tests),
                hidden_tests=strength.hidden,
                distinct_outputs=strength.distinct_outputs,
            ),
        )

    def program_counts(self, needs_checker: bool) -> dict[str, ProgramCounts]:
        """Return content digest → counts of own programs, without problems the judge failed on."""
        return {
            self._digests[row.name]: row.program_counts
            for row in self.rows.values()
            if row.needs_checker == needs_checker and not row.infra_errors
        }

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


def cheap_earnings(strengths: Sequence[Strength]) -> dict[str, Any]:
    """Return what problems pay for CHEAP_PROGRAMS, as plain values for run.json.

    `earned` counts the problems that accept a program, and `mean_share` is the mean share of tests
    that it passes; both over the `compared` problems, which need no checker program.
    """
    compared = [one for one in strengths if one.tests and one.cheap_passed is not None]
    earned = dict.fromkeys(CHEAP_PROGRAMS, 0)
    shares = dict.fromkeys(CHEAP_PROGRAMS, 0.0)
    earned_by_any = 0
    for strength in compared:
        passed = dict(zip(CHEAP_PROGRAMS, strength.cheap_passed or (), strict=True))
        earned_by_any += strength.tests in passed.values()
        for name, count in passed.items():
            earned[name] += count == strength.tests
            shares[name] += (count or 0) / strength.tests / len(compared)
    return {
        "problems": len(strengths),
        "compared": len(compared),
        "earned_by_any": earned_by_any,
        "earned": earned,
        "mean_share": {name: round(share, 4) for name, share in shares.items()},
    }


def earnings_line(earnings: Mapping[str, Any]) -> str:
    """Say which cheap programs earn the reward of training problems; "" if none does."""
    if not earnings["earned_by_any"]:
        return ""
    ordered = sorted(earnings["earned"].items(), key=lambda item: -item[1])
    programs = ", ".join(f"{name}: {count}" for name, count in ordered if count)
    share = f"{earnings['earned_by_any']} of {earnings['compared']}"
    return f"programs that solve nothing earn the reward of {share} training problems ({programs})"
