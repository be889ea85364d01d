"""Look at the first rows of a local data set, so that a wrong file or column costs no minutes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.problem import Problem
from envs.tasks.config import TaskConfig
from envs.tasks.dataset_task import data_sets, required_path
from envs.tasks.parsers.field_parsers import Row
from envs.tasks.row_selection import check_difficulties
from envs.tasks.storage.rows import Converter, convert_rows, load_converter, read_rows
from envs.tasks.storage.sources import local_files

FIRST_ROWS = 20
SHOWN_FAULTS = 3
MAX_COLUMN_CHARS = 300
SEARCHED_BYTES = 32_000_000  # of files that are read whole, in search of a difficulty


def check_first_rows(config: TaskConfig) -> None:
    """Raise ValueError if a local path is missing, or none of its first rows gives a problem.

    The message has the rows' numbers. A value of task.difficulty that no row has is an error too,
    if the rows can be searched quickly. Paths on the hub and generated tasks pass.
    """
    for part in data_sets(config):
        if part.rows is not None:
            _check_data_set(part)


def first_row_hints(config: TaskConfig) -> list[str]:
    """Return what the first rows of local files show to be probably missing in `task.fields`.

    Raises as `check_first_rows`.
    """
    hints = dict[str, None]()
    for part in data_sets(config):
        if part.rows is None or "://" in required_path(part):
            continue
        converter = load_converter(part.rows, part.fields, "task.rows")
        for found in local_files(required_path(part), "task.path", part.files).values():
            for file in found[:1]:
                if hint := converter.hint(itertools.islice(read_rows(file), FIRST_ROWS)):
                    hints[hint] = None
    return list(hints)


def _check_data_set(config: TaskConfig) -> None:
    assert config.rows is not None
    wanted = [("task.path", required_path(config), config.rows, config.files)]
    if config.test_path is not None:
        test_files = config.test_files or config.files
        test_rows = config.test_rows or config.rows
        wanted.append(("task.test_path", config.test_path, test_rows, test_files))
    local = [given for given in wanted if "://" not in given[1]]
    found = [local_files(path, key, files) for key, path, _, files in local]
    every = [file for splits in found for each in splits.values() for file in each]
    # whether `every` has all rows, and the column of difficulties is what counts
    complete = len(local) == len(wanted)
    for (key, path, rows, _), splits in zip(local, found, strict=True):
        converter = load_converter(rows, config.fields, key.replace("path", "rows"))
        for file in [file for each in splits.values() for file in each[:1]]:
            others = [other for other in every if other != file]
            first = _check_file(converter, file, f"{key}={path}", others)
            complete &= all(_is_column(_column(config), row, made) for row, made in first)
    if complete and config.difficulty:
        known = _difficulties(every, _column(config))
        if known:  # without any, opening the task says that no row has the field
            check_difficulties(config.name, config.difficulty, known)


def _column(config: TaskConfig) -> str:
    """Return the name of the rows' column of difficulties."""
    return config.fields.difficulty or "difficulty"


def _is_column(column: str, row: Row, problem: Problem) -> bool:
    """Whether a problem's difficulty is what stands in its row's column."""
    return problem.difficulty == _text(row.get(column))


def _text(value: object) -> str:
    return str(value or "")


def _difficulties(files: Sequence[Path], column: str) -> set[str]:
    """Return the different values of a column; none if the files are too large to be read here.

    Of Parquet files the column alone is read, whatever their size.
    """
    import pyarrow.parquet

    parquet = [file for file in files if file.suffix == ".parquet"]
    others = [file for file in files if file.suffix != ".parquet"]
    if sum(file.stat().st_size for file in others) > SEARCHED_BYTES:
        return set()
    found: set[str] = set()
    for file in parquet:
        if column not in pyarrow.parquet.read_schema(file).names:
            return set()
        values = pyarrow.parquet.read_table(file, columns=[column]).column(0).unique()
        found |= {_text(value) for value in values.to_pylist()}
    for file in others:
        found |= {_text(row.get(column)) for row in read_rows(file) if isinstance(row, dict)}
    return found - {""}


def _check_file(
    converter: Converter, file: Path, given: str, others: Sequence[Path]
) -> list[tuple[Row, Problem]]:
    """Return the first rows that give problems. Raises ValueError if there are none.

    `others`: the data set's other files.
    """
    try:
        numbered = list(itertools.islice(_numbered_rows(file), FIRST_ROWS))
    except ValueError as error:  # a broken file
        raise ValueError(f"{given}: {str(error).replace(str(file), file.name)}") from error
    if not numbered:
        raise ValueError(f"{given}: {file.name} has no row")
    converter.check(read_rows(file), str(file), map(read_rows, others))
    found = list(convert_rows(converter, (row for _, row in numbered)))
    first = [
        (row, item)
        for (_, row), item in zip(numbered, found, strict=True)
        if row is not None and isinstance(item, Problem)
    ]
    if first:
        return first
    faults = [f"{place}: {item}" for (place, _), item in zip(numbered, found, strict=True)]
    row = next((row for _, row in numbered if isinstance(row, dict)), {})
    columns = f"; its columns are {', '.join(map(str, row))[:MAX_COLUMN_CHARS]}" * bool(row)
    more = f"; {len(faults) - SHOWN_FAULTS} more like these" * (len(faults) > SHOWN_FAULTS)
    raise ValueError(
        f"{given}: none of the first {len(faults)} rows of {file.name} gives a problem: "
        f"{'; '.join(faults[:SHOWN_FAULTS])}{more}{columns}"
    )


def _numbered_rows(file: Path) -> Iterator[tuple[str, Row | None]]:
    """Yield ("line 3", row): lines as an editor counts them, rows elsewhere."""
    rows = read_rows(file)
    if file.suffix != ".jsonl":
        yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))
        return
    with file.open(encoding="utf-8", errors="surrogateescape") as lines:
        numbers = (number for number, line in enumerate(lines, 1) if line.strip())
        yield from ((f"line {number}", row) for number, row in zip(numbers, rows, strict=False))
