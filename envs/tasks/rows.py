"""Rows of public contest data sets, in their original schemas, turned into problems.

TACO, CodeContests and APPS; HumanEval and MBPP have files of their own. From JSON lines, parquet or
Arrow. Rows that cannot be judged are skipped and counted by reason; problems that accept any valid
answer stay, marked `needs_checker`.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from envs.checker import comparable
from envs.problem import Problem, Test
from envs.tasks import fields
from envs.tasks.fields import SkipRow
from envs.tasks.humaneval import humaneval_problem
from envs.tasks.mbpp import mbpp_problem
from envs.tasks.special_judge import checker_for

Row = Mapping[str, Any]

_PYTHON_3 = 3  # CodeContests' number for the language
_CODE_CONTESTS_SOURCES = (
    "UNKNOWN_SOURCE",
    "CODECHEF",
    "CODEFORCES",
    "HACKEREARTH",
    "CODEJAM",
    "ATCODER",
    "AIZU",
)


def taco_problem(row: Row, name: str) -> Problem:
    """A problem from a row of TACO or APPS, whose statements show their own samples.

    Call-based if the row names a function or brings starter code. Raises SkipRow.
    """
    held = fields.load_json(row.get("input_output"), "input_output")
    if not isinstance(held, dict):
        raise SkipRow("input_output is not an object")
    starter_code = row.get("starter_code") or ""
    fn_name = fields.function_name(held.get("fn_name"), starter_code)
    read = fields.call_tests if fn_name else fields.stdin_tests
    tests = read(held.get("inputs"), held.get("outputs"))
    statement = row.get("question") or ""
    return Problem(
        name=name,
        statement=statement,
        samples=(),
        tests=tests,
        checker=checker_for(statement, tests, fn_name),
        fn_name=fn_name,
        starter_code=starter_code,
        time_limit_s=fields.seconds(row.get("time_limit")),
        memory_limit_mb=fields.megabytes(row.get("memory_limit")),
        difficulty=row.get("difficulty") or "",
        tags=fields.tag_list(row.get("tags")),
        source=row.get("source") or "",
        solutions=fields.programs(row.get("solutions"), "solutions"),
        incorrect_solutions=fields.programs(row.get("incorrect_solutions"), "incorrect_solutions"),
    )


def code_contests_problem(row: Row, name: str) -> Problem:
    """A problem from a row of CodeContests: all its tests, and its Python 3 programs.

    Raises SkipRow, also for a problem that reads or writes files.
    """
    if row.get("input_file") not in (None, "", "stdin"):
        raise SkipRow("reads a file")
    if row.get("output_file") not in (None, "", "stdout"):
        raise SkipRow("writes a file")
    samples = _code_contests_tests(row, "public_tests")
    by_hand = dict.fromkeys(samples + _code_contests_tests(row, "private_tests"))
    tests = tuple(by_hand | dict.fromkeys(_code_contests_tests(row, "generated_tests")))
    if not tests:
        raise SkipRow("no tests")
    statement = row.get("description") or ""
    source = row.get("source") or 0
    memory_bytes = row.get("memory_limit_bytes") or 0
    return Problem(
        name=name,
        statement=statement,
        samples=samples,
        tests=tests,
        checker=checker_for(statement, tests, None),
        generated_tests=len(tests) - len(by_hand),
        time_limit_s=_duration(row.get("time_limit")),
        memory_limit_mb=-(-memory_bytes // 2**20) or None,
        difficulty=str(row.get("difficulty") or ""),
        tags=tuple(tag for tag in row.get("cf_tags") or () if tag),
        source=_source(source),
        solutions=_python_3(row.get("solutions")),
        incorrect_solutions=_python_3(row.get("incorrect_solutions")),
    )


def read_rows(path: Path, first: int = 0) -> Iterator[Row | None]:
    """The rows of a .jsonl, .parquet or .arrow file from a number on; None for a line not JSON.

    Raises ValueError for another kind of file or a broken one, OSError where it cannot be read.
    """
    if path.suffix in (".jsonl", ".json"):
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            yield from map(_json_line, itertools.islice(filter(str.strip, lines), first, None))
    elif path.suffix in (".parquet", ".arrow"):
        try:
            for batch in _arrow_batches(path):
                yield from batch.slice(min(first, batch.num_rows)).to_pylist()
                first = max(0, first - batch.num_rows)
        except ValueError as error:
            raise ValueError(f"{path}: not a whole {path.suffix} file: {error}") from error
    else:
        raise ValueError(f"{path}: neither .jsonl nor .parquet nor .arrow")


def _arrow_batches(path: Path) -> Iterator[Any]:
    """Few rows at a time: those of whole contests hold megabytes each."""
    import pyarrow as pa
    import pyarrow.parquet

    if path.suffix == ".parquet":
        yield from pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=16)
        return
    with pa.memory_map(str(path)) as held:
        try:
            reader = pa.ipc.open_stream(held)  # as `datasets` saves it
        except pa.ArrowInvalid:
            whole = pa.ipc.open_file(held)
            reader = (whole.get_batch(i) for i in range(whole.num_record_batches))
        for batch in reader:
            for start in range(0, batch.num_rows, 16):
                yield batch.slice(start, 16)


def read(schema: str, rows: Iterable[Row | None], first: int = 0) -> Iterator[Problem | SkipRow]:
    """For every row its problem, or why it gives none; `first` is the number of the first row.

    Names are `schema/key`, the key being the data set's own name or number, else the row's number.
    Nothing that stands in a row raises.
    """
    build, key = TASKS[schema]
    for number, row in enumerate(rows, first):
        if not isinstance(row, dict):
            yield SkipRow("the line is not a JSON object")
            continue
        own = row.get(key) if key else None
        try:
            yield _sound(build(row, f"{schema}/{number:05d}" if own is None else f"{schema}/{own}"))
        except SkipRow as reason:
            yield reason
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            # a column of another type than the data set's: one row is not worth a crash
            yield SkipRow(f"a column cannot be read ({type(error).__name__})")
        except RecursionError:
            yield SkipRow("a column is nested too deep")


def load(schema: str, path: Path) -> tuple[list[Problem], Counter[str]]:
    """(the problems of a file of `schema`'s rows, why other rows were skipped and how many).

    Raises as `read_rows`, and KeyError for a schema not in TASKS.
    """
    found = list(read(schema, read_rows(path)))
    problems = [item for item in found if isinstance(item, Problem)]
    names = unique([problem.name for problem in problems])
    problems = [replace(problem, name=name) for problem, name in zip(problems, names, strict=True)]
    return problems, Counter(str(item) for item in found if isinstance(item, SkipRow))


def unique(names: Iterable[str]) -> list[str]:
    """The second of the same name and all after it get `#2`, `#3`, …"""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found


def _sound(problem: Problem) -> Problem:
    """The problem if all of it is of the right type and can be written down; else SkipRow."""
    tests = (*problem.samples, *problem.tests)
    named = (problem.statement, problem.starter_code, problem.difficulty, problem.source)
    texts = [*named, problem.name, problem.fn_name or "", *problem.tags]
    texts += [*problem.solutions, *problem.incorrect_solutions]
    texts += [text for test in tests for text in (test.input, test.output)]
    if not all(isinstance(text, str) for text in texts):
        raise SkipRow("a text is of another type")
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise SkipRow("a text is not Unicode") from None
    if problem.fn_name and not all(comparable("call", test.output) for test in problem.tests):
        raise SkipRow("an expected value is not JSON")
    limits = (problem.time_limit_s, problem.memory_limit_mb)
    if not all(limit is None or 0 < limit < 1e9 for limit in limits):
        raise SkipRow("a limit is not a positive number")
    return problem


# task → (how a row becomes a problem, the column that names it)
TASKS: dict[str, tuple[Callable[[Row, str], Problem], str | None]] = {
    "taco": (taco_problem, None),
    "code_contests": (code_contests_problem, "name"),
    "apps": (taco_problem, "problem_id"),
    "humaneval": (humaneval_problem, "task_id"),
    "mbpp": (mbpp_problem, "task_id"),
}


def _code_contests_tests(row: Row, column: str) -> tuple[Test, ...]:
    held = row.get(column) or {}
    inputs, outputs = held.get("input") or [], held.get("output") or []
    if len(inputs) != len(outputs):
        raise SkipRow("inputs and outputs differ in number")
    return tuple(map(Test, inputs, outputs))


def _source(value: int | str) -> str:
    if isinstance(value, int) and 0 <= value < len(_CODE_CONTESTS_SOURCES):
        return _CODE_CONTESTS_SOURCES[value]
    return str(value)


def _duration(held: Any) -> float | None:
    """Seconds of {seconds, nanos}; None where unknown."""
    if not held:
        return None
    return (held.get("seconds") or 0) + (held.get("nanos") or 0) / 1e9 or None


def _python_3(held: Any) -> tuple[str, ...]:
    if not held:
        return ()
    pairs = zip(held.get("language") or (), held.get("solution") or (), strict=False)
    return tuple(program for language, program in pairs if language == _PYTHON_3)


def _json_line(line: str) -> Row | None:
    try:
        with fields.integers_of_any_length():
            return json.loads(line)
    except (ValueError, RecursionError):
        return None
