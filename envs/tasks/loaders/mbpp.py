"""MBPP (google-research-datasets/mbpp; Austin et al. 2021): a sentence, and asserts to satisfy.

Reads both versions: `full` has text, test_setup_code and challenge_test_list; `sanitized` has
prompt and test_imports.
"""

from __future__ import annotations

from envs.problem import Problem
from envs.tasks.parsers.asserts import asserted_tests, parse
from envs.tasks.parsers.field_parsers import Row, SkipRow, named_by_row

# The published splits, by task_id (Austin et al. 2021, section 2.1); 1 to 10 are for few-shot
# prompts.
SPLITS = {"test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}


def published_split(name: str) -> str | None:
    """Return the split of the problem `mbpp/TASK_ID`; None for the few-shot examples."""
    number = name.partition("/")[2]
    if not number.isdecimal():
        return None
    return next((split for split, ids in SPLITS.items() if int(number) in ids), None)


def problem(row: Row, name: str) -> Problem:
    """Convert a row. The statement shows the first assert, as usual for MBPP. Raises SkipRow."""
    if row.get("test_setup_code"):
        raise SkipRow("the tests have set-up code")
    asserts = [*_texts(row, "test_list"), *_texts(row, "challenge_test_list")]
    fn_name, tests = asserted_tests(parse("\n".join(asserts), "test_list"))
    text = row.get("text") or row.get("prompt")
    code = row.get("code")
    if not isinstance(text, str):
        raise SkipRow("neither text nor prompt is there")
    statement = f"{text.strip()}\n\nFor example:\n```python\n{asserts[0].strip()}\n```"
    return Problem(
        name=named_by_row(name, row.get("task_id")),
        statement=statement,
        samples=tests[:1],
        tests=tests,
        checker="assert",
        fn_name=fn_name,
        source="MBPP",
        solutions=(code,) if isinstance(code, str) else (),
    )


def _texts(row: Row, column: str) -> list[str]:
    items = row.get(column) or []
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise SkipRow(f"{column} is not a list of texts")
    return items
