"""Codeforces (open-r1/codeforces, configuration `verifiable`): ratings, dates, checker programs.

`official_tests` are the tests that Codeforces shows whole, those of under about 400 characters; the
generated ones are 110 GB of other files, which are not read. A row without an official test beyond
the statement's samples is skipped: a table of the samples would earn its reward. In 2026 the card
said CC-BY-4.0 in its header and ODC-By in its text.

Read: the card, a row that another page quotes, and open-r1's own judge, which runs a checker as
`checker.py input.txt correct_output.txt output.txt` (not the rows themselves).
"""

from __future__ import annotations

import math

from envs.problem import CheckerProgram, Problem, Test
from envs.tasks.checker_rules import checker_for
from envs.tasks.parsers import (
    Row,
    SkipRow,
    iso_date,
    named_by_row,
    plain_lines,
    rating,
    tag_list,
)

_SECTIONS = {"Input": "input_format", "Output": "output_format", "Note": "note"}


def problem(row: Row, name: str) -> Problem:
    """Convert a row, with its official tests and its checker. Raises SkipRow."""
    if row.get("interaction_format"):
        raise SkipRow("interactive")
    if row.get("input_mode") == "file":
        # a program in the sandbox has no folder to find input.txt in
        raise SkipRow("reads input.txt and writes output.txt")
    if row.get("executable") is False:
        raise SkipRow("no program was ever run on its tests")
    samples, official = _tests(row, "examples"), _tests(row, "official_tests")
    shown = {_words(sample) for sample in samples}
    hidden = tuple(test for test in official if _words(test) not in shown)
    if not hidden:
        raise SkipRow("no tests but the statement's samples")
    statement = _statement(row)
    # with the official copies of the samples: another output there proves several answers
    by_words = [Test(" ".join(_words(test)), test.output) for test in samples + official]
    source = row.get("generated_checker")
    checker = CheckerProgram("python", source) if source else None
    limit, memory = row.get("time_limit"), row.get("memory_limit")
    return Problem(
        name=named_by_row(name, row.get("id")),
        statement=statement,
        samples=samples,
        tests=samples + hidden,
        checker="program" if checker else checker_for(statement, by_words, None),
        time_limit_s=limit or None,
        memory_limit_mb=math.ceil(memory) if memory else None,
        tags=tag_list(row.get("tags")),
        source="CODEFORCES",
        rating=rating(row.get("rating")),
        date=iso_date(row.get("contest_start")),
        checker_program=checker,
    )


def _tests(row: Row, column: str) -> tuple[Test, ...]:
    """Return the distinct tests of a column; one with a null is left out."""
    tests = (
        Test(plain_lines(test["input"]), plain_lines(test["output"]))
        for test in row.get(column) or ()
        if test["input"] is not None and test["output"] is not None
    )
    return tuple(dict.fromkeys(tests))


def _statement(row: Row) -> str:
    """Return the description and the sections after it, as Codeforces shows them."""
    parts = [row.get("description") or ""]
    parts += [f"{title}\n\n{row[column]}" for title, column in _SECTIONS.items() if row.get(column)]
    return "\n\n".join(parts)


def _words(test: Test) -> tuple[str, ...]:
    """Return a test's input by words: an official copy of a sample has other line ends."""
    return tuple(test.input.split())
