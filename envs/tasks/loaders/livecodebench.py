"""LiveCodeBench (livecodebench/code_generation_lite; Jain et al. 2024): a test set with dates.

Release v6 is test.jsonl to test6.jsonl, release v5 the same without test6.jsonl. The public tests
are JSON; the private ones are that too, or base64 of zlib of a pickle of JSON. Read: the hub's
listing, LiveCodeBench's own reader and judge, and other public readers (not the rows themselves).

LiveCodeBench compares outputs exactly. Where the statement accepts several answers, the problem is
marked `needs_checker` as in every data set here, so fewer problems are scored than there.
"""

from __future__ import annotations

from envs.problem import Problem
from envs.tasks.parsers.contest_fields import iso_date, tests_of
from envs.tasks.parsers.field_parsers import Row, SkipRow, load_json, named_by_row
from envs.tasks.parsers.packed_tests import load_tests
from envs.tasks.parsers.special_judge import checker_for


def problem(row: Row, name: str) -> Problem:
    """Convert a row; its samples are the public tests. Raises SkipRow."""
    statement, starter_code = row.get("question_content"), row.get("starter_code") or ""
    if not isinstance(statement, str):
        raise SkipRow("question_content is not a text")
    public = load_json(row.get("public_test_cases"), "public_test_cases") or []
    private = load_tests(row.get("private_test_cases"), "private_test_cases") or []
    if not isinstance(public, list) or not isinstance(private, list):
        raise SkipRow("tests are not a list of objects")
    if not private:
        raise SkipRow("no private tests")
    fn_name, tests = tests_of(public + private, row.get("metadata"), starter_code)
    samples = tests_of(public, row.get("metadata"), starter_code)[1] if public else ()
    return Problem(
        name=named_by_row(name, row.get("question_id")),
        statement=statement,
        samples=samples,
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        difficulty=row.get("difficulty") or "",
        source=row.get("platform") or "",
        date=iso_date(row.get("contest_date")),
    )
