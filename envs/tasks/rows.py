"""Rows of a data set: find their files, read them, convert them to problems, keep these on disk.

A file is JSON lines, one JSON array, CSV, Parquet or Arrow. It lies in a folder or on the hub of
Hugging Face (streamed, at a pinned commit). `task.rows` names the function that converts a row.
Rows that give no problem are counted by reason. Problems that accept several answers are kept,
marked `needs_checker`. Each file is converted once: its problems are stored under a hash of the
file, the limits on tests, and the code that converts rows.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import inspect
import io
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

import fsspec
from rich.console import Console
from rich.progress import track

from envs.caching import cache_root, code_digest, replace_file
from envs.command_line import load_function
from envs.judge.checker_program import PROGRAM
from envs.judge.checkers import comparable, is_checker
from envs.messages import explain_hub_error
from envs.problem import Problem, Test
from envs.tasks import parsers
from envs.tasks.loaders import own
from envs.tasks.parsers import Row, SkipRow
from envs.tasks.stored import Entry, load_entries, row_of, statement_hash, stored_batches
from envs.tasks.task import FieldsConfig, FilesConfig

FOLDER_PATTERNS = {"train": "train*", "validation": "valid*", "test": "test*", "choose": "choose*"}
SUFFIXES = (".parquet", ".arrow", ".jsonl", ".json", ".csv")
DROPPED = "kept without tests over task.max_test_bytes"  # how a problem differs from its row
RENAMED = "with the name of an earlier problem: renamed NAME#2"  # likewise
FIRST_ROWS = 200  # of which one gives a problem, and one has each column
_SHOWN_FAULTS = 3
_ARROW_ROWS = 16  # read at once: the rows of whole contests hold megabytes each
_CHUNK = 1 << 20  # characters of a JSON array read at once
_MAX_CELL = 1 << 30  # characters of a cell in a CSV file
_PINNED = re.compile(r"hf://datasets/(?P<name>[^@]+)@(?P<commit>[0-9a-f]{40})")
# of a column of an unexpected type, or of a parser (html.parser asserts): not worth a crash
_ERRORS_OF_A_ROW = (
    *(TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError),
)

T = TypeVar("T")
# place in the file, such as "line 3"; None: not JSON; SkipRow: another fault
Numbered = tuple[str, Row | SkipRow | None]


# Files.


@dataclass(frozen=True)
class RowFile:
    """A file of rows."""

    system: Any  # an fsspec file system
    path: str  # in it
    label: str  # in messages
    stem: str  # distinguishes the files of a task in problem names
    where: str  # KEY=PATH, as the configuration has it
    follows: bool = False  # its rows are numbered behind those of the file before

    @property
    def suffix(self) -> str:
        return Path(self.path).suffix

    @property
    def identity(self) -> tuple[object, ...]:
        """Changes whenever a row may differ. What a commit of the hub holds never changes."""
        if _PINNED.match(self.label):
            return (self.label,)
        info = self.system.info(self.path)
        return (self.path, info["size"], info.get("mtime"))


def find_files(path: str, key: str, files: FilesConfig) -> dict[str, list[RowFile]]:
    """Return the files of each split; a single file is under "all", to be divided later.

    `files` is the data set's layout. A local folder that does not match it is searched for train*,
    valid*, choose* and test*. `key` is the configuration key of `path`. Raises ValueError or
    OSError in one line.
    """
    if "://" in path:
        return _remote_files(path, key, files)
    folder, kinds = Path(path).expanduser(), ", ".join(SUFFIXES)
    if not folder.exists():
        place = "" if folder.is_absolute() else f"; looked for {folder.absolute()}"
        raise ValueError(f"{key}={path}: no such file or folder{place}")
    if folder.is_file():
        if folder.suffix not in SUFFIXES:
            raise ValueError(f"{key}={path}: not a file of rows; it must end in {kinds}")
        found = {"all": [folder]}
    else:
        matches = {split: list(folder.glob(pattern)) for split, pattern in _layout(files).items()}
        if not any(matches.values()):
            matches = {split: list(folder.rglob(name)) for split, name in FOLDER_PATTERNS.items()}
        found = {
            split: sorted(f for f in matches.get(split, ()) if f.is_file() and f.suffix in SUFFIXES)
            for split in FOLDER_PATTERNS
        }
    if not any(found.values()):
        raise ValueError(
            f"{key}={path}: no train*, valid*, choose* or test* file of kind {kinds} in it"
        )
    system, where = fsspec.filesystem("file"), f"{key}={path}"
    return {
        split: [RowFile(system, str(file), str(file), file.stem, where) for file in each]
        for split, each in found.items()
    }


def _layout(files: FilesConfig) -> dict[str, str]:
    return {split: pattern for split, pattern in asdict(files).items() if pattern}


def _remote_files(path: str, key: str, files: FilesConfig) -> dict[str, list[RowFile]]:
    """Files at hf://datasets/ID@COMMIT, or at file://FOLDER with the same layout."""
    base, layout, files_key = path.rstrip("/"), _layout(files), key.replace("path", "files")
    if base.startswith("hf://") and not _PINNED.fullmatch(base):
        raise ValueError(
            f"{key}={path}: name the commit, hf://datasets/ID@COMMIT with its 40 hex digits; what "
            f"a branch holds may change between two runs{_newest_commit(base)}"
        )
    if not layout:
        raise ValueError(
            f"{key}={path}: say which files hold its splits, {files_key}.train=PATTERN"
        )
    found: dict[str, list[RowFile]] = {split: [] for split in FOLDER_PATTERNS}
    for split, pattern in layout.items():
        if Path(pattern).suffix not in SUFFIXES:
            raise ValueError(f"{files_key}.{split}={pattern}: it must end in {', '.join(SUFFIXES)}")
        with _explained(f"{key}={base}"):
            system, names = _matches(base, pattern)
        for number, name in enumerate(names):
            label = system.unstrip_protocol(name)
            found[split].append(RowFile(system, name, label, split, f"{key}={base}", number > 0))
    return found


def _matches(base: str, pattern: str) -> tuple[Any, list[str]]:
    """Return (file system, the files that match). Raises FileNotFoundError if none does.

    Of a commit on the hub the list is kept, so that prepared data sets need no network.
    """
    system, path = fsspec.core.url_to_fs(f"{base}/{pattern}")
    kept = cache_root() / "listings" / f"{hashlib.sha256(path.encode()).hexdigest()[:16]}.json"
    pinned = _PINNED.match(base)
    if pinned and kept.exists():
        return system, json.loads(kept.read_text())
    if pinned:
        import huggingface_hub

        # first, since the hub reports a data set without read access only as empty
        huggingface_hub.HfApi().dataset_info(pinned["name"], revision=pinned["commit"])
    names = sorted(system.glob(path))
    if not names:
        raise FileNotFoundError(path)
    if pinned:
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, json.dumps(names))
    return system, names


def _newest_commit(base: str) -> str:
    """Return the end of a message that names a data set's newest commit; "" without the hub."""
    import huggingface_hub

    name = base.removeprefix("hf://datasets/").partition("@")[0]
    try:
        commit = huggingface_hub.HfApi().dataset_info(name, timeout=10).sha
    except Exception:  # the hub's dozens of types: offline, unknown, gated
        return ""
    return f". The newest one now is hf://datasets/{name}@{commit}"


@contextmanager
def _explained(where: str, file: str = "") -> Iterator[None]:
    """Raise whatever a library raises as ValueError in one line; `where` is KEY=PATH."""
    try:
        yield
    except Exception as error:
        key, _, path = where.partition("=")
        first_line = str(error).strip().partition("\n")[0]
        message = explain_hub_error(error, key, path, "dataset")
        reason = f"{file} cannot be read: {type(error).__name__}: {first_line}".lstrip()
        raise ValueError(message or f"{where}: {reason}") from error


# Rows.


def read_rows(file: RowFile) -> Iterator[Numbered]:
    """Yield each row with its place: a line as an editor counts, or a row, from 1.

    Raises ValueError in one line for a file that is broken or cannot be read.
    """
    with _explained(file.where, file.label), file.system.open(file.path, "rb") as content:
        if file.suffix in (".parquet", ".arrow"):
            yield from _numbered(_arrow_rows(content, file.suffix))
            return
        if content.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise ValueError("it is UTF-16: save it as UTF-8")
        content.seek(0)
        if file.suffix == ".csv":
            yield from _csv_rows(content)
            return
        text = io.TextIOWrapper(content, encoding="utf-8", errors="surrogateescape")
        is_array = text.read(4096).lstrip("\ufeff \t\r\n").startswith("[")
        text.seek(0)
        if is_array:
            yield from _numbered(_array_items(text))
            return
        for number, line in enumerate(text, 1):
            if line.strip():
                yield f"line {number}", _parsed(line)


def _csv_rows(file: Any) -> Iterator[Numbered]:
    """Yield the rows below a header, each with its last line; an empty cell is None."""
    csv.field_size_limit(_MAX_CELL)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    header = text.readline()
    text.seek(0)
    # a spreadsheet writes semicolons where a comma stands in numbers
    reader = csv.DictReader(text, delimiter=max(",;\t", key=header.count))
    names = Counter(reader.fieldnames or ())
    if names and names.most_common(1)[0][1] > 1:
        raise ValueError(f"its header has the column {names.most_common(1)[0][0]!r} twice")
    for row in reader:
        odd = SkipRow("a row has more or fewer cells than the header")
        is_odd = None in row or None in row.values()
        yield f"line {reader.line_num}", odd if is_odd else {k: row[k] or None for k in row}


def _numbered(rows: Iterable[Row | None]) -> Iterator[Numbered]:
    return ((f"row {number}", row) for number, row in enumerate(rows, 1))


def _parsed(line: str) -> Row | None:
    try:
        with parsers.integers_of_any_length():
            return json.loads(line.removeprefix("\ufeff"))  # of a file saved on Windows
    except (ValueError, RecursionError):
        return None


def _array_items(file: TextIO) -> Iterator[Row]:
    """Yield the items of a JSON array, in memory for some at a time."""
    decoder = json.JSONDecoder()
    text, position = file.read(_CHUNK).lstrip("\ufeff \t\r\n"), 1  # behind the bracket
    while True:
        while text[position : position + 1] in tuple(", \t\r\n"):
            position += 1
        if text.startswith("]", position):
            return
        try:
            with parsers.integers_of_any_length():
                item, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            more = file.read(max(_CHUNK, len(text)))
            if not more:
                raise ValueError(f"the array is not whole: {error}") from None
            text, position = text[position:] + more, 0
        else:
            yield item


def _arrow_rows(file: Any, suffix: str) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet

    batches: Iterable[pa.RecordBatch]
    if suffix == ".parquet":
        batches = pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=_ARROW_ROWS)
    else:
        try:
            batches = pa.ipc.open_stream(file)  # the format that `datasets` saves
        except pa.ArrowInvalid:
            opened = pa.ipc.open_file(file)
            batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
    for batch in batches:
        for start in range(0, batch.num_rows, _ARROW_ROWS):
            yield from batch.slice(start, _ARROW_ROWS).to_pylist()


# Conversion.


@dataclass(frozen=True)
class Converter:
    """`convert(row, name)` returns a problem, or raises SkipRow with the reason."""

    convert: Callable[[Row, str], Problem]
    prefix: str  # of problem names: the data set, e.g. "taco"
    identity: str  # changes whenever a row may become another problem
    fields: FieldsConfig | None = None  # if the function takes task.fields


def load_converter(name: str | None, fields: FieldsConfig, key: str) -> Converter:
    """Load the converter that the configuration key `key` names (package.module.function).

    Problems are named by the function, or by the module of a function `problem`. A function with a
    parameter `fields` gets task.fields. The identity covers the function's source and everything it
    imports, so problems prepared by older code are not reused. Raises ValueError in one line.
    """
    if name is None:
        raise ValueError(f"{key} is missing: a function from a row to a problem")
    function = load_function(name, key)
    code = code_digest(function.__module__, name.rpartition(".")[0])
    prefix = name.removesuffix(".problem").rpartition(".")[2]
    if "fields" in inspect.signature(function).parameters:
        convert = partial(function, fields=fields)
        return Converter(convert, prefix, repr((name, code, fields)), fields)
    if fields != FieldsConfig():
        raise ValueError(f"task.fields is for task=own; {key}={name} knows its columns itself")
    return Converter(function, prefix, repr((name, code)))


def convert_row(converter: Converter, row: Row | SkipRow | None, number: int) -> Problem | SkipRow:
    """Return a row's problem, or the reason why it has none. No content of a row raises."""
    if isinstance(row, SkipRow):
        return row
    if not isinstance(row, dict):
        return SkipRow("the line is not a JSON object")
    try:
        return _checked(converter.convert(row, f"{converter.prefix}/{number:05d}"))
    except SkipRow as reason:
        return reason
    except KeyError as error:
        return SkipRow(f"column {str(error.args[0])[:40]!r} is missing")
    except _ERRORS_OF_A_ROW as error:
        return SkipRow(f"a column cannot be read ({type(error).__name__})")
    except RecursionError:
        return SkipRow("a column is nested too deep")


def _checked(problem: Problem) -> Problem:
    """Return a problem whose types, texts and limits are sound; else raise SkipRow."""
    tests = (*problem.samples, *problem.tests)
    texts = [problem.statement, problem.starter_code, problem.difficulty, problem.source]
    texts += [problem.name, problem.fn_name or "", problem.date, *problem.tags]
    texts += [problem.checker_program.source] if problem.checker_program else []
    texts += [*problem.solutions, *problem.incorrect_solutions]
    texts += [text for test in tests for text in (test.input, test.output)]
    if not all(isinstance(text, str) for text in texts):
        raise SkipRow("a text is of another type")
    if not problem.statement.strip():
        raise SkipRow("no statement")
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError as error:
        undecoded = "\udc80" <= error.object[error.start] <= "\udcff"  # surrogateescape's
        mend = "save the file as UTF-8" if undecoded else r"it has half of a pair \ud83d\ude00"
        raise SkipRow(f"a text is not Unicode: {mend}") from None
    marked = problem.checker == "needs_checker"
    if not (marked or problem.checker == PROGRAM or is_checker(problem.checker)):
        raise SkipRow(f"there is no checker {problem.checker[:60]!r}")
    checker = "call" if marked and problem.fn_name else problem.checker
    if not all(comparable(checker, test.output) for test in problem.tests):
        raise SkipRow("an expected value is not JSON")
    limits = (problem.time_limit_s, problem.memory_limit_mb)
    if not all(limit is None or 0 < limit < 1e9 for limit in limits):
        raise SkipRow("a limit is not a positive number")
    if problem.rating is not None and not 0 <= problem.rating < 1e9:
        raise SkipRow("a rating is not a positive number")
    return problem


@dataclass(frozen=True)
class SizeLimits:
    """Limits on a problem's tests: samples are kept first, then other tests, then generated ones.

    A random order seeded by the statement decides within each kind.
    """

    max_tests: int
    max_bytes: int  # of inputs and outputs together


def limit_tests(problem: Problem, limits: SizeLimits) -> Problem:
    """Return the problem with as many tests as the limits allow."""
    handmade, samples = len(problem.tests) - problem.generated_tests, set(problem.samples)
    hidden = [test for test in problem.tests[:handmade] if test not in samples]
    generated = list(problem.tests[handmade:])
    rng = random.Random(f"tests/{statement_hash(problem.statement)}")
    for tests in (hidden, generated):
        rng.shuffle(tests)
    kept: list[Test] = []
    bytes_left = limits.max_bytes
    for test in (*problem.samples, *hidden, *generated):
        size = len(test.input.encode()) + len(test.output.encode())
        if len(kept) < limits.max_tests and size <= bytes_left:
            kept.append(test)
            bytes_left -= size
    generated_set = set(generated)
    generated_kept = sum(test in generated_set for test in kept)
    return replace(problem, tests=tuple(kept), generated_tests=generated_kept)


@dataclass
class Converted:
    """The problems of some files, and the rows that gave none."""

    rows: int = 0
    entries: list[Entry] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # reason → how many rows
    first_skipped: dict[str, str] = field(default_factory=dict)  # reason → "line 3 of FILE"
    changed: Counter[str] = field(default_factory=Counter)  # DROPPED, RENAMED → how many problems


def converted(
    files: Sequence[RowFile],
    converter: Converter,
    limits: SizeLimits,
    alone: bool,
    data_set: Sequence[RowFile] = (),
) -> Converted:
    """Return the problems of files, converting those not yet converted, with a sign of life.

    Unless a file is `alone` in the task, the names of its problems also carry its own. `data_set`:
    all files of the data set. Raises ValueError or OSError in one line; whole files stay converted.
    """
    found, first = Converted(), 0
    for file in files:
        first = first if file.follows else 0
        code = code_digest(__name__)
        content = (converter.identity, file.identity, first, limits, code)
        digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
        stored = cache_root() / "problems" / f"{converter.prefix}-{digest}.arrow"
        rows = partial(_stored_rows, file, converter, limits, first, data_set or files)
        batches = stored_batches(stored, rows)
        found.entries += load_entries(batches, "" if alone else f"@{file.stem}")
        for batch in batches:
            first += batch.num_rows
            found.rows += batch.num_rows
            found.changed[DROPPED] += sum(map(bool, batch.column("dropped_tests").to_pylist()))
            reasons, places = (batch.column(name).to_pylist() for name in ("skipped", "place"))
            for reason, place in zip(reasons, places, strict=True):
                if reason is not None:
                    found.skipped[reason] += 1
                    found.first_skipped.setdefault(reason, f"{place} of {file.label}")
    names = unique_names(entry.name for entry in found.entries)
    pairs = list(zip(found.entries, names, strict=True))
    found.changed[RENAMED] = sum(entry.name != name for entry, name in pairs)
    found.entries = [
        entry if entry.name == name else replace(entry, name=name) for entry, name in pairs
    ]
    return found


def _stored_rows(
    file: RowFile,
    converter: Converter,
    limits: SizeLimits,
    first: int,
    data_set: Sequence[RowFile],
) -> Iterator[dict[str, Any]]:
    """Convert a file, row by row. Raises ValueError if none of its first rows gives a problem."""
    check_columns(converter.fields, file, data_set)
    faults: list[str] | None = []
    rows = watched(read_rows(file), f"preparing {file.label}")
    for number, (place, row) in enumerate(rows, first):
        item = convert_row(converter, row, number)
        if isinstance(item, Problem):
            faults = None
            problem = limit_tests(item, limits)
            left_out = None if problem.tests else "tests over task.max_test_bytes"
            if problem.checker == "needs_checker":
                left_out = "needs a checker of its own"
            dropped = min(limits.max_tests, len(item.tests)) - len(problem.tests)
            yield row_of(problem, left_out) | {"dropped_tests": max(0, dropped)}
            continue
        yield {"skipped": str(item), "place": place}
        if faults is not None:
            faults.append(f"{place}: {item}")
            if len(faults) == FIRST_ROWS:
                raise ValueError(
                    f"{file.where}: none of the first {FIRST_ROWS} rows of {file.label} gives a "
                    f"problem: {'; '.join(faults[:_SHOWN_FAULTS])}; …"
                )


def watched(items: Iterable[T], what: str) -> Iterable[T]:
    """Return the items, with a sign of life on a terminal while they are taken."""
    console = Console(stderr=True)
    return track(
        items, what, total=None, console=console, transient=True, disable=not console.is_terminal
    )


def check_columns(fields: FieldsConfig | None, file: RowFile, data_set: Sequence[RowFile]) -> None:
    """Raise ValueError for a column of task.fields that no file of the data set has."""
    if not fields:
        return

    def first_rows(one: RowFile) -> list[Row]:
        rows = (row for _, row in itertools.islice(read_rows(one), FIRST_ROWS))
        return [row for row in rows if isinstance(row, dict)]

    rows = first_rows(file)
    try:
        own.check_columns(fields, rows, file.label)
    except ValueError:
        if len(data_set) < 2:
            raise
        rows = [row for one in data_set for row in first_rows(one)]
        own.check_columns(fields, rows, file.where)


def unique_names(names: Iterable[str]) -> list[str]:
    """Append `#2`, `#3`, … to the second and later occurrences of a name."""
    counts: Counter[str] = Counter()
    unique = []
    for name in names:
        counts[name] += 1
        unique.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return unique
