"""The Arrow schema of stored problems, and conversion of problems to it and back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from envs.hidden_tests import measure_strength
from envs.problem import CheckerProgram, Problem, Test

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS = ("name", "statement", "checker", "fn_name", "starter_code", "difficulty", "source", "date")
_INTEGERS = ("memory_limit_mb", "generated_tests", "rating")
_LISTS = ("tags", "solutions", "incorrect_solutions")
_TESTS = ("samples", "tests")


@cache
def schema() -> pa.Schema:
    """The fields of a Problem, then columns that are computed once, when a row is converted."""
    import pyarrow as pa

    test = pa.struct([("input", pa.string()), ("output", pa.string())])
    counts = [(name, pa.int64()) for name in ("tests", "hidden", "distinct_outputs")]
    strength = pa.struct([*counts, ("cheap_passed", pa.list_(pa.int64()))])
    return pa.schema(
        [
            *((name, pa.string()) for name in _TEXTS),
            *((name, pa.list_(pa.string())) for name in _LISTS),
            *((name, pa.list_(test)) for name in _TESTS),
            ("time_limit_s", pa.float64()),
            *((name, pa.int64()) for name in _INTEGERS),
            ("checker_program", pa.struct([("language", pa.string()), ("source", pa.string())])),
            ("hash", pa.string()),  # Problem.hash: over everything that a verdict depends on
            ("digest", pa.string()),  # over everything but the name
            ("statement_hash", pa.string()),
            ("strength", strength),  # envs.hidden_tests.Strength
            ("left_out", pa.string()),  # why the problem cannot be trained on; null if it can
        ]
    )


def to_batch(problems: Sequence[Problem], left_out: Sequence[str | None]) -> pa.RecordBatch:
    """Convert problems to one row each."""
    import pyarrow as pa

    rows = [_row(problem, reason) for problem, reason in zip(problems, left_out, strict=True)]
    return pa.RecordBatch.from_pylist(rows, schema=schema())


def to_problem(batch: pa.RecordBatch, row: int, name: str, judged: bool = True) -> Problem:
    """Build the problem of a row under the given name. Its hash is read, not recomputed.

    Without `judged`, tests and programs are left out, and their pages are not read.
    """
    if not judged:
        batch = batch.drop_columns(["tests", "solutions", "incorrect_solutions"])
    (stored,) = batch.slice(row, 1).to_pylist()
    stored = {"tests": (), "solutions": (), "incorrect_solutions": ()} | stored
    values = {key: stored[key] for key in (*_TEXTS, *_INTEGERS, "time_limit_s")}
    values |= {key: tuple(stored[key]) for key in _LISTS}
    values |= {key: tuple(Test(**test) for test in stored[key]) for key in _TESTS}
    if stored["checker_program"]:
        values["checker_program"] = CheckerProgram(**stored["checker_program"])
    problem = Problem(**values | {"name": name})
    vars(problem)["hash"] = stored["hash"]  # fills the cached property
    return problem


def statement_hash(statement: str) -> str:
    """Return 14 hex digits over the statement's words."""
    return hashlib.sha256(" ".join(statement.split()).encode()).hexdigest()[:14]


def content_digest(problem: Problem) -> str:
    """Return 16 hex digits over everything but the name."""
    content = (problem.statement, problem.samples, problem.starter_code, problem.hash)
    programs = (problem.solutions, problem.incorrect_solutions)
    return hashlib.sha256(repr((*content, *programs)).encode()).hexdigest()[:16]


def _row(problem: Problem, left_out: str | None) -> dict[str, Any]:
    scalars = (*_TEXTS, *_INTEGERS, "time_limit_s")
    row: dict[str, Any] = {key: getattr(problem, key) for key in (*scalars, *_LISTS)}
    row |= {
        key: [{"input": test.input, "output": test.output} for test in getattr(problem, key)]
        for key in _TESTS
    }
    checker = problem.checker_program
    return row | {
        "checker_program": checker and {"language": checker.language, "source": checker.source},
        "hash": problem.hash,
        "digest": content_digest(problem),
        "statement_hash": statement_hash(problem.statement),
        "strength": asdict(measure_strength(problem)),
        "left_out": left_out,
    }
